#include "codegen/cpu/loop_nest.h"

#include "codegen/cpu/parallel.h"
#include "codegen/cpu/tiles.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

namespace hindcast::codegen::cpu {
namespace {

// Elements of a tile. The columns are those in which tensors that are not copied are read: long enough for hardware prefetching.
constexpr int64_t kTileRows = 64, kTileColumns = 256;
// Padding of a tile's rows: rows a power of two apart would map to few cache sets.
constexpr int64_t kPad = 16;
// Elements that short rows are packed to: a call of the kernel costs as much as some dozens of elements.
constexpr int64_t kPacked = 1024;
// Elements of padding that are read at a time.
constexpr int64_t kZeros = 1024;
alignas(64) const char zeros[kZeros * 16] = {};

int64_t ceil_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

class Nest {
 public:
  Nest(DenseKernel* dense, c10::ArrayRef<Loop> nest, c10::ArrayRef<int64_t> widths, const double* scalars, int64_t grain)
      : dense_(dense), nest_(nest), inner_(nest.back()), widths_(widths), scalars_(scalars), one_{1, {}} {
    one_.steps.resize(widths.size(), 0);
    const bool one_by_one = sort_tensors();
    choose_rows();
    choose_tiles(one_by_one, grain);
  }

  int64_t tiles() const {
    int64_t count = row_tiles_ * column_tiles_;
    for (const Loop* loop : outer_) count *= loop->size;
    return count;
  }
  int64_t elements_of_tile() const { return tile_rows_ * tile_columns_; }

  void run(const Pointers& pointers, int64_t begin, int64_t end) const {
    std::vector<char> copies((odd_.size() + read_through_.size()) * static_cast<size_t>(copied_bytes_));
    std::vector<TilePart> parts(odd_.empty() && read_through_.empty() && padded_.empty() ? 0 : widths_.size());
    // By repeated row: what was copied last (the source and the number of rows).
    c10::SmallVector<std::pair<const char*, int64_t>, 8> copied(read_through_.size());
    Pointers corner(pointers.size()), at(pointers.size());
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first_column = tile % column_tiles_ * tile_columns_;
      const int64_t first_row = tile / column_tiles_ % row_tiles_ * tile_rows_;
      const int64_t columns = std::min(tile_columns_, inner_.size - first_column), rows = std::min(tile_rows_, rows_->size - first_row);
      for (const size_t i : odd_) parts[i] = {0, rows, 0, columns};
      for (const size_t i : padded_) parts[i] = part_of(i, first_row, rows, first_column, columns);
      std::copy(pointers.begin(), pointers.end(), corner.begin());
      advance(corner, inner_, first_column);
      advance(corner, *rows_, first_row);
      int64_t rest = tile / column_tiles_ / row_tiles_;
      for (const Loop* loop : outer_) {
        const int64_t index = rest % loop->size;
        advance(corner, *loop, index);
        for (const size_t i : padded_) {
          if (!has(span_of(*loop, i), index)) parts[i] = {};
        }
        rest /= loop->size;
      }
      const auto copy_of = [&](size_t n) { return copies.data() + static_cast<int64_t>(n) * copied_bytes_; };
      const auto copy = [&](size_t n, size_t i) {
        copy_tile(copy_of(n), corner[i], {rows, columns, rows_->steps[i], inner_.steps[i], pitch_}, parts[i], widths_[i]);
      };
      for (size_t n = 0; n < odd_.size(); ++n) copy(n, odd_[n]);
      if (packs_rows_) {
        std::copy(corner.begin(), corner.end(), at.begin());
        for (size_t n = 0; n < read_through_.size(); ++n) {
          const size_t i = read_through_[n], left = read_through_.size() - n;
          at[i] = copy_of(n);
          const bool is_repeated = left <= repeated_.size();
          if (is_repeated && copied[n].first == corner[i] && copied[n].second >= rows) continue;
          if (left <= repeated_.size() + numbers_.size()) parts[i] = {0, rows, 0, columns};
          copy(n, i);
          copied[n] = {corner[i], rows};
        }
        dense_({.pointers = at.data(), .scalars = scalars_, .count = rows * columns});
        continue;
      }
      for (int64_t row = 0; row < rows; ++row) {
        std::copy(corner.begin(), corner.end(), at.begin());
        advance(at, *rows_, row);
        for (size_t n = 0; n < read_through_.size(); ++n) {
          const size_t i = read_through_[n];
          at[i] = row_of_padding(at[i], row, columns, parts[i], widths_[i], copy_of(odd_.size() + n));
        }
        for (size_t n = 0; n < odd_.size(); ++n) at[odd_[n]] = copy_of(n) + row * pitch_ * widths_[odd_[n]];
        dense_({.pointers = at.data(), .scalars = scalars_, .count = columns});
      }
    }
  }

 private:
  static bool has(const Span& span, int64_t index) { return span.begin <= index && index < span.end; }
  static Span span_of(const Loop& loop, size_t i) { return loop.spans.empty() ? Span{0, loop.size} : loop.spans[i]; }

  // Sorts tensors by how they differ from the kernel's strides. Returns true if one is broadcast for the kernel but not here.
  bool sort_tensors() {
    bool one_by_one = false;
    for (size_t i = 0; i < widths_.size(); ++i) {
      const bool is_padded = is_cut(i);
      const bool is_part = !span_of(inner_, i).is_all_of(inner_.size);
      const bool goes_as_kernel = (inner_.steps[i] == widths_[i] && !(is_part && widths_[i] == 0)) || inner_.size == 1;
      if (!goes_as_kernel && widths_[i] == 0) one_by_one = true;
      if (!goes_as_kernel && widths_[i] != 0) odd_.push_back(i);
      if (is_padded) padded_.push_back(i);
      if (is_padded && (odd_.empty() || odd_.back() != i)) read_through_.push_back(i);
    }
    return one_by_one;
  }

  void choose_tiles(bool one_by_one, int64_t grain) {
    tile_columns_ = one_by_one         ? 1
                    : !odd_.empty()    ? std::min(kTileColumns, inner_.size)
                    : !padded_.empty() ? std::min(kZeros, inner_.size)
                                       : inner_.size;
    packs_rows_ = !one_by_one && may_pack_rows();
    if (packs_rows_) {
      odd_.clear();  // all in `numbers_`
      read_through_.insert(read_through_.end(), numbers_.begin(), numbers_.end());
      read_through_.insert(read_through_.end(), repeated_.begin(), repeated_.end());
    }
    // If nothing is copied, a tile has the minimum number of elements per thread.
    tile_rows_ = std::clamp<int64_t>(grain / tile_columns_, 1, rows_->size);
    if (!odd_.empty() || packs_rows_) tile_rows_ = std::min(kTileRows, rows_->size);
    if (packs_rows_ && padded_.empty()) tile_rows_ = std::clamp<int64_t>(kPacked / tile_columns_, 1, rows_->size);
    row_tiles_ = ceil_of(rows_->size, tile_rows_);
    column_tiles_ = ceil_of(inner_.size, tile_columns_);
    pitch_ = tile_columns_ + (packs_rows_ ? 0 : kPad);
    for (const size_t i : odd_) copied_bytes_ = std::max(copied_bytes_, tile_rows_ * pitch_ * widths_[i]);
    for (const size_t i : read_through_) copied_bytes_ = std::max(copied_bytes_, (packs_rows_ ? tile_rows_ : 1) * pitch_ * widths_[i]);
  }

  bool is_cut(size_t i) const {
    if (inner_.spans.empty()) return false;
    return std::any_of(nest_.begin(), nest_.end(), [&](const Loop& loop) { return !span_of(loop, i).is_all_of(loop.size); });
  }

  bool is_number_of_row(size_t i) const { return inner_.steps[i] == 0 && widths_[i] != 0; }

  // Whether short rows can be packed: rows of padded tensors are copied with their zeros, to have the layout of all other tensors, and a
  // short row that is broadcast is repeated, as is one number per row.
  bool may_pack_rows() {
    if (tile_columns_ != inner_.size || inner_.size >= kTileColumns) return false;
    for (const size_t i : odd_) {
      if (!is_number_of_row(i) || is_cut(i)) return false;
      numbers_.push_back(i);
    }
    for (size_t i = 0; i < widths_.size(); ++i) {
      if (std::find(numbers_.begin(), numbers_.end(), i) != numbers_.end()) continue;
      const bool is_padded = std::find(padded_.begin(), padded_.end(), i) != padded_.end();
      const bool goes_on = rows_->size == 1 || rows_->steps[i] == inner_.steps[i] * inner_.size;
      if (is_padded ? widths_[i] == 0 : !goes_on && (rows_->steps[i] != 0 || widths_[i] == 0)) return false;
      if (!is_padded && !goes_on) repeated_.push_back(i);
    }
    return !padded_.empty() || !repeated_.empty() || !numbers_.empty();
  }

  // Chooses the loop for a tile's rows: the outer loop with the smallest stride in the first odd tensor with several elements per row.
  void choose_rows() {
    rows_ = &one_;
    const auto odd = std::find_if(odd_.begin(), odd_.end(), [&](size_t i) { return !is_number_of_row(i); });
    for (size_t d = nest_.size() - 1; d-- > 0;) {
      const Loop& loop = nest_[d];
      if (rows_ == &one_ || (odd != odd_.end() && std::abs(loop.steps[*odd]) < std::abs(rows_->steps[*odd]))) rows_ = &loop;
    }
    for (size_t d = nest_.size() - 1; d-- > 0;) {
      if (&nest_[d] != rows_) outer_.push_back(&nest_[d]);
    }
  }

  TilePart part_of(size_t i, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns) const {
    const Span of_rows = span_of(*rows_, i), of_columns = span_of(inner_, i);
    const auto within = [](int64_t index, int64_t first, int64_t count) { return std::clamp<int64_t>(index - first, 0, count); };
    return {within(of_rows.begin, first_row, rows), within(of_rows.end, first_row, rows), within(of_columns.begin, first_column, columns),
            within(of_columns.end, first_column, columns)};
  }

  static char* row_of_padding(char* at, int64_t row, int64_t columns, const TilePart& part, int64_t width, char* copied) {
    if (part.is_empty() || row < part.first_row || row >= part.end_row) return const_cast<char*>(zeros);
    if (part.first_column == 0 && part.end_column == columns) return at;
    copy_tile(copied, at, {1, columns, 0, width, columns}, {0, 1, part.first_column, part.end_column}, width);
    return copied;
  }

  static void advance(Pointers& pointers, const Loop& loop, int64_t by) {
    for (size_t i = 0; i < pointers.size(); ++i) pointers[i] += by * loop.steps[i];
  }

  DenseKernel* const dense_;
  const c10::ArrayRef<Loop> nest_;
  const Loop& inner_;
  const c10::ArrayRef<int64_t> widths_;
  const double* const scalars_;
  Loop one_;
  const Loop* rows_ = nullptr;
  c10::SmallVector<const Loop*, 4> outer_;    // innermost first
  c10::SmallVector<size_t, 8> odd_;           // tensors with another stride than the kernel's
  c10::SmallVector<size_t, 8> padded_;        // padded tensors
  c10::SmallVector<size_t, 8> read_through_;  // padded tensors with the kernel's stride; then, if rows are packed, the next two
  c10::SmallVector<size_t, 8> numbers_;       // tensors of one number per row
  c10::SmallVector<size_t, 8> repeated_;      // tensors that are one broadcast row
  bool packs_rows_ = false;
  int64_t tile_rows_ = 1, tile_columns_ = 1, row_tiles_ = 1, column_tiles_ = 1;
  int64_t pitch_ = 1, copied_bytes_ = 0;  // of a copied tile
};

}  // namespace

void run_nest(DenseKernel* dense, c10::ArrayRef<Loop> nest, const Pointers& pointers, c10::ArrayRef<int64_t> widths, const double* scalars,
              int64_t grain) {
  const Nest loops(dense, nest, widths, scalars, grain);
  run_ranges(loops.tiles(), std::max<int64_t>(1, grain / loops.elements_of_tile()),
             [&](int64_t begin, int64_t end) { loops.run(pointers, begin, end); });
}

}  // namespace hindcast::codegen::cpu
