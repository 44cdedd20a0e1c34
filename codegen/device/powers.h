#pragma once
// The two numbers of a softmax in one pass over a row: the largest element, and the sum of the powers exp(x - largest) (online softmax;
// Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).

#include "codegen/device/arithmetic.h"
#include "codegen/device/exponentials.h"

namespace hindcast::device {

/// The sum is of exp(x - from), and `rest` is what rounding left out of it: equal numbers are rounded alike each time. `from` follows the
/// largest element only where that is far above: each time it moves, the whole sum is rounded, and a row that rises slowly would lose a
/// digit by that.
template <class T>
struct PowersFrom {
  T largest, from, sum, rest;
};

/// exp(x - from). Of two that are infinite alike it is 1: they have no distance, and whoever takes that of the row's elements finds it.
template <class T>
HC_DEVICE T power_from(T x, T from) {
  return x == from ? T(1) : exp<T>(x - from);
}

template <class T>
HC_DEVICE PowersFrom<T> merge(PowersFrom<T> a, PowersFrom<T> b) {
  const bool swaps = a.from < b.from;
  const PowersFrom<T> more = swaps ? b : a, less = swaps ? a : b;
  const T share = power_from<T>(less.from, more.from);
  const Pair<T> sum = exact_sum(more.sum, less.sum * share);
  return {maximum<T>(a.largest, b.largest), more.from, sum.high, more.rest + less.rest * share + sum.low};
}

/// Adds some more numbers of one thread.
template <int kCount, class T>
HC_DEVICE PowersFrom<T> with_powers(PowersFrom<T> all, const T (&numbers)[kCount]) {
  constexpr float kFar = 8;  // exp(8) is 2,981
  T largest = numbers[0], sum = T(0);
#pragma unroll
  for (int i = 1; i < kCount; ++i) largest = maximum<T>(largest, numbers[i]);
  if (!(largest <= all.from + T(kFar))) {  // NaN is far from all
    const T share = power_from<T>(all.from, largest);
    all = {all.largest, largest, all.sum * share, all.rest * share};
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum += power_from<T>(numbers[i], all.from);
  const Pair<T> with = exact_sum(all.sum, sum);
  return {maximum<T>(all.largest, largest), all.from, with.high, all.rest + with.low};
}

/// The sum of exp(x - largest).
template <class T>
HC_DEVICE T sum_of_powers(PowersFrom<T> all) {
  return (all.sum + all.rest) * power_from<T>(all.from, all.largest);
}

}  // namespace hindcast::device
