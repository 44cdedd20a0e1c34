#include "codegen/cpu/nest.h"

#include "codegen/cpu/parallel.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace hindcast::codegen {
namespace {

// Elements. Other tensors are read by pieces of so many columns: long enough for the hardware to read ahead.
constexpr int64_t kTileRows = 64, kTileColumns = 256;
// Rows of a tile that lie a power of two apart would share few lines of the cache.
constexpr int64_t kPad = 16;

int64_t ceil_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

/// Along which steps a tile is read: columns become neighbours.
struct Tile {
  int64_t rows, columns, row_step, column_step, pitch;
};

template <class T>
void gather_elements(char* to, const char* from, const Tile& tile) {
  auto* neighbours = reinterpret_cast<T*>(to);
  const auto copy = [&](int64_t row, int64_t column) {
    neighbours[row * tile.pitch + column] = *reinterpret_cast<const T*>(from + row * tile.row_step + column * tile.column_step);
  };
  // A few columns at once where rows are nearer: a line that is read has elements of several rows, one written of several columns.
  const int64_t strip = std::abs(tile.row_step) < std::abs(tile.column_step) ? 8 : tile.columns;
  for (int64_t first = 0; first < tile.columns; first += strip) {
    const int64_t end = std::min(first + strip, tile.columns);
    for (int64_t row = 0; row < tile.rows; ++row) {
      for (int64_t column = first; column < end; ++column) copy(row, column);
    }
  }
}

void gather(char* to, const char* from, const Tile& tile, int64_t width) {
  switch (width) {
    case 1:
      return gather_elements<uint8_t>(to, from, tile);
    case 2:
      return gather_elements<uint16_t>(to, from, tile);
    case 4:
      return gather_elements<uint32_t>(to, from, tile);
    case 8:
      return gather_elements<uint64_t>(to, from, tile);
    default:
      return gather_elements<std::array<uint64_t, 2>>(to, from, tile);
  }
}

class Nest {
 public:
  Nest(DenseKernel* dense, c10::ArrayRef<Loop> nest, c10::ArrayRef<int64_t> widths, const double* scalars, int64_t grain)
      : dense_(dense), nest_(nest), inner_(nest.back()), widths_(widths), scalars_(scalars), one_{1, {}} {
    one_.steps.resize(widths.size(), 0);
    bool one_by_one = false;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (inner_.steps[i] == widths[i] || inner_.size == 1) continue;
      if (widths[i] == 0) one_by_one = true;
      if (widths[i] != 0) odd_.push_back(i);
      widest_ = std::max(widest_, widths[i]);
    }
    choose_rows();
    tile_columns_ = one_by_one ? 1 : odd_.empty() ? inner_.size : std::min(kTileColumns, inner_.size);
    // Where nothing is copied, as many rows as one thread takes at least.
    tile_rows_ = odd_.empty() ? std::clamp<int64_t>(grain / tile_columns_, 1, rows_->size) : std::min(kTileRows, rows_->size);
    row_tiles_ = ceil_of(rows_->size, tile_rows_);
    column_tiles_ = ceil_of(inner_.size, tile_columns_);
  }

  int64_t tiles() const {
    int64_t count = row_tiles_ * column_tiles_;
    for (const Loop* loop : outer_) count *= loop->size;
    return count;
  }
  int64_t elements_of_tile() const { return tile_rows_ * tile_columns_; }

  void run(const Pointers& pointers, int64_t begin, int64_t end) const {
    const int64_t pitch = tile_columns_ + kPad, scratch_bytes = tile_rows_ * pitch * widest_;
    std::vector<char> scratch(odd_.size() * static_cast<size_t>(scratch_bytes));
    Pointers corner(pointers.size()), at(pointers.size());
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first_column = tile % column_tiles_ * tile_columns_;
      const int64_t first_row = tile / column_tiles_ % row_tiles_ * tile_rows_;
      const int64_t columns = std::min(tile_columns_, inner_.size - first_column), rows = std::min(tile_rows_, rows_->size - first_row);
      std::copy(pointers.begin(), pointers.end(), corner.begin());
      advance(corner, inner_, first_column);
      advance(corner, *rows_, first_row);
      int64_t rest = tile / column_tiles_ / row_tiles_;
      for (const Loop* loop : outer_) {
        advance(corner, *loop, rest % loop->size);
        rest /= loop->size;
      }
      for (size_t n = 0; n < odd_.size(); ++n) {
        const size_t i = odd_[n];
        gather(scratch.data() + static_cast<int64_t>(n) * scratch_bytes, corner[i],
               {rows, columns, rows_->steps[i], inner_.steps[i], pitch}, widths_[i]);
      }
      for (int64_t row = 0; row < rows; ++row) {
        std::copy(corner.begin(), corner.end(), at.begin());
        advance(at, *rows_, row);
        for (size_t n = 0; n < odd_.size(); ++n)
          at[odd_[n]] = scratch.data() + static_cast<int64_t>(n) * scratch_bytes + row * pitch * widths_[odd_[n]];
        dense_(at.data(), scalars_, columns);
      }
    }
  }

 private:
  // Of the loops around the innermost, the one along which the first odd tensor's elements lie nearest.
  void choose_rows() {
    rows_ = &one_;
    for (size_t d = nest_.size() - 1; d-- > 0;) {
      const Loop& loop = nest_[d];
      if (rows_ == &one_ || (!odd_.empty() && std::abs(loop.steps[odd_[0]]) < std::abs(rows_->steps[odd_[0]]))) rows_ = &loop;
    }
    for (size_t d = nest_.size() - 1; d-- > 0;) {
      if (&nest_[d] != rows_) outer_.push_back(&nest_[d]);
    }
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
  c10::SmallVector<const Loop*, 4> outer_;  // from the inside
  c10::SmallVector<size_t, 8> odd_;         // tensors that lie in another way
  int64_t widest_ = 1;
  int64_t tile_rows_ = 1, tile_columns_ = 1, row_tiles_ = 1, column_tiles_ = 1;
};

}  // namespace

void run_nest(DenseKernel* dense, c10::ArrayRef<Loop> nest, const Pointers& pointers, c10::ArrayRef<int64_t> widths, const double* scalars,
              int64_t grain) {
  const Nest loops(dense, nest, widths, scalars, grain);
  run_ranges(loops.tiles(), std::max<int64_t>(1, grain / loops.elements_of_tile()),
             [&](int64_t begin, int64_t end) { loops.run(pointers, begin, end); });
}

}  // namespace hindcast::codegen
