#pragma once
// Matrix products by blocks that stay in registers. For CPUs.
//
// A block is some rows of the result by two vectors of its columns. B is read by panels of a block's columns. A panel whose columns are not
// contiguous in memory, or do not fill its vectors, is copied first, once for all rows. The ops after the product (a bias, an activation, a
// mask) get the rows of several adjacent blocks while these are in the innermost cache: so they access their tensors sequentially. If b
// does not fit into the second-level cache, each of its panels is applied to all rows instead.
//
// The blocks themselves are the same for all kernels: they are compiled once (product_blocks.h), and kernels call them.

#include "codegen/device/types.h"

namespace hindcast::device {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kBlockRows = 8;  // 32 registers
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32, kBlockRows = 6;  // 16 registers
#else
inline constexpr int kVectorBytes = 16, kBlockRows = 4;
#endif

/// Rows of the next block, if that many are left. Eight rows are two blocks of four, not of six and two: a short block reads as much of b
/// as a long one.
HC_DEVICE long rows_of_block(long left) { return kBlockRows == 6 && left == 8 ? 4 : left < kBlockRows ? left : kBlockRows; }

/// Elements of a vector, and of the columns of a block.
template <class T>
inline constexpr int kLanes = kVectorBytes / sizeof(T);
template <class T>
inline constexpr int kBlockColumns = 2 * kLanes<T>;

/// Element (m, k) of a is at a[m * a_step + k], or at a[k * a_step + m] if `kIsATransposed`; likewise (k, n) of b. Steps in elements.
template <class T>
struct Factors {
  const T* a;
  const T* b;
  long a_step, b_step;
  long depth;
};

/// The functions that kernels call, by the number of vectors of a panel, minus one.
template <class T>
struct ProductBlocks {
  /// The columns [first, first + columns) of b, that many vectors per row, with zeros after the last column. First for a b that is not
  /// transposed, then for a transposed one.
  void (*copy_panel[2][2])(const Factors<T>& factors, long first, long columns, T* panel);
  /// At most kBlockRows rows of a, starting at `a`, times a panel, to `block`. First for a plain a, then for a transposed one.
  void (*multiply[2][2])(long rows, const T* a, long a_step, const T* panel, long panel_step, long depth, T* block, long block_step);
  /// Rows of a, starting at `a`, times all columns of a transposed b, element by element.
  void (*multiply_few)(long rows, const T* a, const Factors<T>& factors, long columns, T* block, long block_step);
};

/// Bytes of b that are used for some rows before the next rows: this many stay in the second-level cache.
inline constexpr long kBytesAtOnce = 1 << 18;
/// Whether the columns, such as the few scores of a policy, leave a panel so empty that sums of products along the depth are faster. To add
/// up the lanes of such a sum takes as long as some 16 vectors. Each row reads all of b.
template <class T>
HC_DEVICE bool are_few(long columns, long depth) {
  return columns * (depth / kLanes<T> + 16) <= depth && columns * depth * (long)sizeof(T) <= kBytesAtOnce;
}
/// Columns of adjacent blocks.
template <class T>
inline constexpr long kMostColumns = 1024 / sizeof(T);

/// Bytes for copied panels.
HC_DEVICE long scratch_bytes(long panel_bytes, long panels) {
  return panel_bytes > kBytesAtOnce ? panel_bytes : panel_bytes * panels > kBytesAtOnce ? kBytesAtOnce : panel_bytes * panels;
}

/// Columns of blocks that are finished together: whole blocks.
template <class T>
HC_DEVICE long columns_at_once(long columns, long depth) {
  constexpr long kAll = kBlockColumns<T>;
  const long all = (columns + kAll - 1) / kAll * kAll, some = all < kMostColumns<T> ? all : kMostColumns<T>;
  return all * depth * (long)sizeof(T) > kBytesAtOnce ? kAll : some;
}

/// Rows of b that are a multiple of 512 bytes apart share few sets of the innermost cache; the rows of a copy do not. A copy pays if many
/// rows read it.
HC_DEVICE bool is_worth_copying(long rows, long depth, long step_bytes) { return rows >= 64 && depth > 32 && step_bytes % 512 == 0; }

/// The rows [begin, end) of a product of `columns` columns. Calls `finish(product, row, column, count)` for each of them, in pieces
/// starting at `column`. `scratch`: for copied panels.
template <bool kIsATransposed, bool kIsBTransposed, class T, class Finish>
HC_DEVICE void multiply(const ProductBlocks<T>& blocks, const Factors<T>& factors, long begin, long end, long columns, T* scratch,
                        Finish finish) {
  constexpr long kAll = kBlockColumns<T>, kHalf = kLanes<T>;
  alignas(kVectorBytes) T block[kBlockRows * kMostColumns<T>];
  const long at_once = columns_at_once<T>(columns, factors.depth);
  const bool copies_all = kIsBTransposed || is_worth_copying(end - begin, factors.depth, factors.b_step * (long)sizeof(T));
  const bool is_by_sums = kIsBTransposed && !kIsATransposed && are_few<T>(columns, factors.depth);
  const auto count_of = [&](long column) { return columns - column < kAll ? columns - column : kAll; };
  const auto is_copied = [&](long count) { return copies_all || count < (count <= kHalf ? kHalf : kAll); };
  for (long first = 0; first < columns; first += at_once) {
    const long last = columns - first < at_once ? columns : first + at_once;
    const auto copy_of = [&](long column) { return copies_all ? scratch + (column - first) * factors.depth : scratch; };
    for (long column = first; column < last && !is_by_sums; column += kAll) {
      const long count = count_of(column);
      if (is_copied(count)) blocks.copy_panel[kIsBTransposed][count > kHalf](factors, column, count, copy_of(column));
    }
    for (long row = begin, rows; row < end; row += rows) {
      rows = rows_of_block(end - row);
      const T* const a = kIsATransposed ? factors.a + row : factors.a + row * factors.a_step;
      if (is_by_sums) blocks.multiply_few(rows, a, factors, columns, block, at_once);
      for (long column = first; column < last && !is_by_sums; column += kAll) {
        const long count = count_of(column);
        const T* const panel = is_copied(count) ? copy_of(column) : factors.b + column;
        const long panel_step = !is_copied(count) ? factors.b_step : count <= kHalf ? kHalf : kAll;
        blocks.multiply[kIsATransposed][count > kHalf](rows, a, factors.a_step, panel, panel_step, factors.depth, block + (column - first),
                                                       at_once);
      }
      for (long i = 0; i < rows; ++i) finish(block + i * at_once, row + i, first, last - first);
    }
  }
}

}  // namespace hindcast::device
