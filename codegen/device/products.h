#pragma once
// Matrix products by blocks that stay in registers. For CPUs.
//
// A block is some rows of the result by two vectors of its columns. What comes behind the product (a bias, an activation, a mask) is given
// the rows of each block while they are in the innermost cache. B is read by panels of a block's columns. A panel whose columns do not
// follow each other in memory, or do not fill its vectors, is copied first, once for all rows.
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

/// Rows of the next block, where so many are left. Eight are two blocks of four, not of six and two: a short block reads as much of b as a long one.
HC_DEVICE long rows_of_block(long left) { return kBlockRows == 6 && left == 8 ? 4 : left < kBlockRows ? left : kBlockRows; }

/// Elements of a vector, and of the columns of a block.
template <class T>
inline constexpr int kLanes = kVectorBytes / sizeof(T);
template <class T>
inline constexpr int kBlockColumns = 2 * kLanes<T>;

/// Element (m, k) of a is at a[m * a_step + k], or at a[k * a_step + m] where `kIsATransposed`; b's (k, n) alike. Steps in elements.
template <class T>
struct Factors {
  const T* a;
  const T* b;
  long a_step, b_step;
  long depth;
};

/// What kernels call, by the vectors that a panel has, less one.
template <class T>
struct ProductBlocks {
  /// The columns [first, first + columns) of b, so many vectors a row, with zeros behind the last column. First of a b as it is, then of a
  /// transposed one.
  void (*copy_panel[2][2])(const Factors<T>& factors, long first, long columns, T* panel);
  /// At most kBlockRows rows of a, from `a` on, times a panel: to `block`, kBlockColumns elements a row. First of an a as it is, then of a
  /// transposed one.
  void (*multiply[2][2])(long rows, const T* a, long a_step, const T* panel, long panel_step, long depth, T* block);
};

/// The rows [begin, end) of a product of `columns` columns. `finish(block, row, column)` is given each row of each block that has all of a
/// block's columns, `finish_some(block, row, column, count)` the others. `scratch`: a panel of b.
template <bool kIsATransposed, bool kIsBTransposed, class T, class Finish, class FinishSome>
HC_DEVICE void multiply(const ProductBlocks<T>& blocks, const Factors<T>& factors, long begin, long end, long columns, T* scratch,
                        Finish finish, FinishSome finish_some) {
  alignas(kVectorBytes) T block[kBlockRows * kBlockColumns<T>];
  for (long column = 0; column < columns; column += kBlockColumns<T>) {
    const long count = columns - column < kBlockColumns<T> ? columns - column : kBlockColumns<T>;
    const bool is_narrow = count <= kLanes<T>;
    const T* panel = factors.b + column;
    long panel_step = factors.b_step;
    if (kIsBTransposed || count < (is_narrow ? kLanes<T> : kBlockColumns<T>)) {
      panel = scratch;
      panel_step = is_narrow ? kLanes<T> : kBlockColumns<T>;
      blocks.copy_panel[kIsBTransposed][!is_narrow](factors, column, count, scratch);
    }
    for (long row = begin, rows; row < end; row += rows) {
      rows = rows_of_block(end - row);
      const T* const a = kIsATransposed ? factors.a + row : factors.a + row * factors.a_step;
      blocks.multiply[kIsATransposed][!is_narrow](rows, a, factors.a_step, panel, panel_step, factors.depth, block);
      if (count == kBlockColumns<T>) {
        for (long i = 0; i < rows; ++i) finish(block + i * kBlockColumns<T>, row + i, column);
      } else {
        for (long i = 0; i < rows; ++i) finish_some(block + i * kBlockColumns<T>, row + i, column, count);
      }
    }
  }
}

}  // namespace hindcast::device
