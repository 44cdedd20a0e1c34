#pragma once
// The blocks of matrix products (products.h), compiled once for all kernels.

#include "codegen/device/products.h"

namespace hindcast::device {

template <class T>
struct Lanes {
  typedef T Of __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
};

template <class T>
HC_DEVICE typename Lanes<T>::Of load_lanes(const T* from) {
  return *reinterpret_cast<const typename Lanes<T>::Of*>(from);
}
template <class T>
HC_DEVICE void store_lanes(T* to, typename Lanes<T>::Of value) {
  *reinterpret_cast<typename Lanes<T>::Of*>(to) = value;
}

template <int... kAt>
struct Places {};
template <int kCount, int... kAt>
struct CountedPlaces : CountedPlaces<kCount - 1, kCount - 1, kAt...> {};
template <int... kAt>
struct CountedPlaces<0, kAt...> {
  using Type = Places<kAt...>;
};

/// Swaps the upper right and the lower left quarter of each square of 2 * kHalf rows.
template <int kHalf, class V, int... kAt>
HC_DEVICE void swap_quarters(V& upper, V& lower, Places<kAt...>) {
  constexpr int kCount = sizeof...(kAt);
  const V first = upper, second = lower;
  upper = __builtin_shufflevector(first, second, (kAt & kHalf ? kCount + kAt - kHalf : kAt)...);
  lower = __builtin_shufflevector(first, second, (kAt & kHalf ? kCount + kAt : kAt + kHalf)...);
}

template <int kHalf, class V, int kCount>
HC_DEVICE void transpose_lanes(V (&rows)[kCount]) {
  if constexpr (kHalf > 0) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kCount; ++i) {
      if ((i & kHalf) == 0) swap_quarters<kHalf>(rows[i], rows[i + kHalf], typename CountedPlaces<kCount>::Type{});
    }
    transpose_lanes<kHalf / 2>(rows);
  }
}

/// The columns [first, first + columns) of b, that many vectors per row, with zeros after the last column.
template <bool kIsBTransposed, int kVectors, class T>
static void copy_panel(const Factors<T>& factors, long first, long columns, T* panel) {
  constexpr int kCount = kLanes<T>, kWidth = kVectors * kCount;
  const long depth = factors.depth, step = factors.b_step;
  const T* const b = factors.b + (kIsBTransposed ? first * step : first);
  long n = 0;
  for (; kIsBTransposed && n + kCount <= columns; n += kCount) {
    long k = 0;
    for (; k + kCount <= depth; k += kCount) {
      typename Lanes<T>::Of rows[kCount];
#pragma clang loop unroll(full)
      for (int i = 0; i < kCount; ++i) rows[i] = load_lanes(b + (n + i) * step + k);
      transpose_lanes<kCount / 2>(rows);
#pragma clang loop unroll(full)
      for (int i = 0; i < kCount; ++i) store_lanes(panel + (k + i) * kWidth + n, rows[i]);
    }
    for (; k < depth; ++k) {
      for (int i = 0; i < kCount; ++i) panel[k * kWidth + n + i] = b[(n + i) * step + k];
    }
  }
  for (long k = 0; k < depth; ++k) {
    for (long i = n; i < columns; ++i) panel[k * kWidth + i] = kIsBTransposed ? b[i * step + k] : b[k * step + i];
    for (long i = columns; i < kWidth; ++i) panel[k * kWidth + i] = T(0);
  }
}

/// The number of terms that are summed in one go. Longer sums consist of such sums, which reduces their error.
HC_DEVICE long depth_at_once(long depth) { return depth <= 1024 ? 128 : 256; }

/// kRows rows of a, starting at `a`, times a panel of that many vectors, written to `block`.
template <int kRows, int kVectors, bool kIsATransposed, class T>
static void multiply_block(const T* a, long a_step, const T* panel, long panel_step, long depth, T* block, long block_step) {
#pragma clang fp contract(fast)
  using V = typename Lanes<T>::Of;
  const T* rows[kRows];
#pragma clang loop unroll(full)
  for (int i = 0; i < kRows; ++i) rows[i] = kIsATransposed ? a + i : a + i * a_step;
  const long at_once = depth_at_once(depth);
  for (long begin = 0; begin < depth; begin += at_once) {
    const long end = depth - begin < at_once ? depth : begin + at_once;
    V sums[kRows][kVectors];
#pragma clang loop unroll(full)
    for (int i = 0; i < kRows; ++i) {
#pragma clang loop unroll(full)
      for (int j = 0; j < kVectors; ++j) sums[i][j] = V{};
    }
#pragma clang loop unroll_count(2)
    for (long k = begin; k < end; ++k) {
      V columns[kVectors];
#pragma clang loop unroll(full)
      for (int j = 0; j < kVectors; ++j) columns[j] = load_lanes(panel + j * kLanes<T>);
      panel += panel_step;
#pragma clang loop unroll(full)
      for (int i = 0; i < kRows; ++i) {
        // Minus zeros, which gives the number itself. Adding zeros would turn -0 into +0, with an addition in each step.
        const V all = (kIsATransposed ? rows[0][k * a_step + i] : rows[i][k]) - V{};
#pragma clang loop unroll(full)
        for (int j = 0; j < kVectors; ++j) sums[i][j] += all * columns[j];
      }
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < kRows; ++i) {
#pragma clang loop unroll(full)
      for (int j = 0; j < kVectors; ++j) {
        T* const to = block + i * block_step + j * kLanes<T>;
        store_lanes(to, begin == 0 ? sums[i][j] : load_lanes(to) + sums[i][j]);
      }
    }
  }
}

template <int kVectors, bool kIsATransposed, class T>
static void multiply_rows(long rows, const T* a, long a_step, const T* panel, long panel_step, long depth, T* block, long block_step) {
  if (rows == kBlockRows)
    return multiply_block<kBlockRows, kVectors, kIsATransposed>(a, a_step, panel, panel_step, depth, block, block_step);
  for (long row = 0; row < rows;) {
    const T* const from = kIsATransposed ? a + row : a + row * a_step;
    T* const to = block + row * block_step;
    if (rows - row >= 4) {
      multiply_block<4, kVectors, kIsATransposed>(from, a_step, panel, panel_step, depth, to, block_step);
      row += 4;
    } else if (rows - row >= 2) {
      multiply_block<2, kVectors, kIsATransposed>(from, a_step, panel, panel_step, depth, to, block_step);
      row += 2;
    } else {
      multiply_block<1, kVectors, kIsATransposed>(from, a_step, panel, panel_step, depth, to, block_step);
      ++row;
    }
  }
}

template <int kHalf, class V, int... kAt>
HC_DEVICE V upper_to_lower(V lanes, Places<kAt...>) {
  return __builtin_shufflevector(lanes, lanes, (kAt ^ kHalf)...);
}
/// The sum of all lanes.
template <int kHalf, class T, class V>
HC_DEVICE T sum_of_lanes(V lanes) {
  if constexpr (kHalf > 0) {
    return sum_of_lanes<kHalf / 2, T>(lanes + upper_to_lower<kHalf>(lanes, typename CountedPlaces<kLanes<T>>::Type{}));
  } else {
    return lanes[0];
  }
}

template <class T>
static void multiply_few(long rows, const T* a, const Factors<T>& factors, long columns, T* block, long block_step) {
#pragma clang fp contract(fast)
  constexpr long kCount = kLanes<T>;
  const long depth = factors.depth, whole = depth / kCount * kCount, at_once = depth_at_once(depth) * kCount;
  for (long row = 0; row < rows; ++row, a += factors.a_step) {
    for (long column = 0; column < columns; ++column) {
      const T* const b = factors.b + column * factors.b_step;
      T sum = 0;
      for (long k = whole; k < depth; ++k) sum += a[k] * b[k];
      for (long begin = 0; begin < whole; begin += at_once) {
        const long end = whole - begin < at_once ? whole : begin + at_once;
        typename Lanes<T>::Of lanes{};
        for (long k = begin; k < end; k += kCount) lanes += load_lanes(a + k) * load_lanes(b + k);
        sum += sum_of_lanes<kCount / 2, T>(lanes);
      }
      block[row * block_step + column] = sum;
    }
  }
}

template <class T>
inline constexpr ProductBlocks<T> kProductBlocks = {
    {{copy_panel<false, 1, T>, copy_panel<false, 2, T>}, {copy_panel<true, 1, T>, copy_panel<true, 2, T>}},
    {{multiply_rows<1, false, T>, multiply_rows<2, false, T>}, {multiply_rows<1, true, T>, multiply_rows<2, true, T>}},
    multiply_few<T>,
};

}  // namespace hindcast::device
