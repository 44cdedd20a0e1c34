#pragma once
// Reductions of a block of numbers: of some contiguous elements of a row. A row's result is merged from those of its blocks.

#include "codegen/device/arithmetic.h"

namespace hindcast::device {

/// Combines numbers in some lanes, and the lanes at the end. `Step`: accumulate(lane, number), join(lane, lane).
template <int64 kLanes, class T, class Step>
HC_DEVICE T fold_in_lanes(const T* numbers, int64 count, T neutral, Step step) {
  T lanes[kLanes];
  for (int64 lane = 0; lane < kLanes; ++lane) lanes[lane] = neutral;
  int64 i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64 lane = 0; lane < kLanes; ++lane) lanes[lane] = step.accumulate(lanes[lane], numbers[i + lane]);
  }
  for (int64 lane = 0; i + lane < count; ++lane) lanes[lane] = step.accumulate(lanes[lane], numbers[i + lane]);
  for (int64 half = kLanes / 2; half > 0; half /= 2) {
    for (int64 lane = 0; lane < half; ++lane) lanes[lane] = step.join(lanes[lane], lanes[lane + half]);
  }
  return lanes[0];
}

/// In as many lanes as keep several vectors busy. For few numbers, combining the lanes would cost more than it saves.
template <class T, class Step>
HC_DEVICE T fold(const T* numbers, int64 count, T neutral, Step step) {
  constexpr int64 kLanes = 128 / sizeof(T);
  if (count < 8 * kLanes) return fold_in_lanes<kLanes>(numbers, count, neutral, step);
  return fold_in_lanes<2 * kLanes>(numbers, count, neutral, step);
}

template <class T>
struct LargerOf {
  HC_DEVICE_MEMBER T accumulate(T a, T b) const { return maximum(a, b); }
  HC_DEVICE_MEMBER T join(T a, T b) const { return maximum(a, b); }
};

template <class T>
struct SmallerOf {
  HC_DEVICE_MEMBER T accumulate(T a, T b) const { return minimum(a, b); }
  HC_DEVICE_MEMBER T join(T a, T b) const { return minimum(a, b); }
};

template <class T>
struct SumOfDistances {
  T from;
  HC_DEVICE_MEMBER T accumulate(T sum, T number) const { return sum + (number - from); }
  HC_DEVICE_MEMBER T join(T a, T b) const { return a + b; }
};

template <class T>
struct SumOfSquares {
  T first, from_first;  // of distances from the two together
  HC_DEVICE_MEMBER T accumulate(T sum, T number) const { return sum + square((number - first) - from_first); }
  HC_DEVICE_MEMBER T join(T a, T b) const { return a + b; }
};

/// The largest number, NaN if one is NaN; -infinity for count 0.
template <class T>
HC_DEVICE T max_of(const T* numbers, int64 count) {
  return fold(numbers, count, -infinity<T>(), LargerOf<T>{});
}
/// The smallest number, NaN if one is NaN; infinity for count 0.
template <class T>
HC_DEVICE T min_of(const T* numbers, int64 count) {
  return fold(numbers, count, infinity<T>(), SmallerOf<T>{});
}

/// A sum of many numbers, and its accumulated rounding errors (Knuth's TwoSum): in one variable the error grows with each number.
template <class T>
struct RunningSum {
  T sum, lost;
};

template <class T>
HC_DEVICE void add_to(RunningSum<T>& to, T number) {
  const T sum = to.sum + number, added = sum - to.sum;
  to.lost = to.lost + ((to.sum - (sum - added)) + (number - added));
  to.sum = sum;
}

/// The rounding error of an infinite sum is NaN.
template <class T>
HC_DEVICE T total_of(RunningSum<T> of) {
  const T total = of.sum + of.lost;
  return total - total == T(0) ? total : of.sum;
}

/// The state of Welford's method for some numbers. m2: the sum of squared deviations from their mean.
template <class T>
struct Moments {
  int64 count;
  T mean, m2;
};

/// The moments of all numbers of both.
template <class T>
HC_DEVICE Moments<T> merge(Moments<T> a, Moments<T> b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const int64 count = a.count + b.count;
  const T distance = b.mean - a.mean, share = T(b.count) / T(count);
  return {count, a.mean + distance * share, a.m2 + b.m2 + distance * distance * (T(a.count) * share)};
}

/// Deviations are relative to the first number: a sum of numbers far from 0 would lose the digits in which they differ.
template <class T>
HC_DEVICE Moments<T> moments_of(const T* numbers, int64 count) {
  if (count == 0) return {0, T(0), T(0)};
  const T first = numbers[0];
  const T from_first = fold(numbers, count, T(0), SumOfDistances<T>{first}) / T(count);
  return {count, first + from_first, fold(numbers, count, T(0), SumOfSquares<T>{first, from_first})};
}

}  // namespace hindcast::device
