#pragma once
// Reductions of a row's elements: how a thread reduces a vector, adds it to its number, and how threads combine their numbers. A sum in one
// variable loses a bit each time its length doubles, so a vector is reduced first.

#include "codegen/device/packs.h"
#include "codegen/device/threads.h"

#if HC_CUDA
namespace hindcast::device {

/// Of two numbers; the neutral number.
template <class T>
struct OfSum {
  using Combine = Adds<T>;
  static HC_DEVICE_MEMBER T none() { return T(0); }
};
template <class T>
struct OfMax {
  using Combine = Larger<T>;
  static HC_DEVICE_MEMBER T none() { return -infinity<T>(); }
};
template <class T>
struct OfMin {
  using Combine = Smaller<T>;
  static HC_DEVICE_MEMBER T none() { return infinity<T>(); }
};

/// `Of`: OfSum, OfMax or OfMin.
template <template <class> class Of, class T>
struct Plain {
  using Number = T;
  using Combine = typename Of<T>::Combine;
  static HC_DEVICE_MEMBER T none() { return Of<T>::none(); }

  template <int kVector>
  struct Vector {
    T part = none();
    HC_DEVICE_MEMBER void add(int, T value) { part = Combine()(part, value); }
  };
  template <int kVector>
  static HC_DEVICE_MEMBER T with(T number, const Vector<kVector>& vector) {
    return Combine()(number, vector.part);
  }
  static HC_DEVICE_MEMBER T with_number(T number, T value) { return Combine()(number, value); }
};
template <class T>
using SumOf = Plain<OfSum, T>;
template <class T>
using MaxOf = Plain<OfMax, T>;
template <class T>
using MinOf = Plain<OfMin, T>;
template <class Reduction>
inline constexpr bool kIsSum = false;
template <class T>
inline constexpr bool kIsSum<SumOf<T>> = true;

/// A vector's elements, for reductions that need all of them at once.
template <class T, int kVector>
struct Elements {
  T numbers[kVector];
  HC_DEVICE_MEMBER void add(int j, T value) { numbers[j] = value; }
};

/// Welford's pair.
template <class T>
struct MomentsOf {
  using Number = MomentsFrom<T>;
  using Combine = Merges<Number>;
  static HC_DEVICE_MEMBER Number none() { return {0, T(0), T(0), T(0)}; }
  template <int kVector>
  using Vector = Elements<T, kVector>;
  template <int kVector>
  static HC_DEVICE_MEMBER Number with(Number number, const Elements<T, kVector>& vector) {
    return merge<T>(number, moments_of_registers<kVector>(vector.numbers));
  }
  static HC_DEVICE_MEMBER Number with_number(Number number, T value) { return merge<T>(number, {1, value, T(0), T(0)}); }
};
template <class T>
HC_DEVICE T mean_of(const MomentsFrom<T>& moments) {
  return moments.from + moments.mean;
}

/// A softmax's pair.
template <class T>
struct PowersOf {
  using Number = PowersFrom<T>;
  using Combine = Merges<Number>;
  static HC_DEVICE_MEMBER Number none() { return {-infinity<T>(), -infinity<T>(), T(0), T(0)}; }
  template <int kVector>
  using Vector = Elements<T, kVector>;
  template <int kVector>
  static HC_DEVICE_MEMBER Number with(Number number, const Elements<T, kVector>& vector) {
    return with_powers(number, vector.numbers);
  }
};

template <class Reduction>
using NumberOf = typename Reduction::Number;
/// A thread's numbers of several reductions.
template <class Reductions>
using Numbers = typename Reductions::template PackOf<NumberOf>;

template <class Reductions>
HC_DEVICE void clear(Numbers<Reductions>& numbers) {
  for_each_below<Reductions::kCount>([&](auto i) { get<i>(numbers) = At<i, Reductions>::none(); });
}

template <int kVector>
struct OfVectors {
  template <class Reduction>
  using Vector = typename Reduction::template Vector<kVector>;
};
template <class Reductions, int kVector>
using Parts = typename Reductions::template PackOf<OfVectors<kVector>::template Vector>;

template <class Reductions, int kVector>
HC_DEVICE void add_vector(Numbers<Reductions>& numbers, const Parts<Reductions, kVector>& parts) {
  for_each_below<Reductions::kCount>(
      [&](auto i) { get<i>(numbers) = At<i, Reductions>::template with<kVector>(get<i>(numbers), get<i>(parts)); });
}

template <class Reductions, int kEnd>
constexpr int sums_below() {
  int count = 0;
  if constexpr (kEnd > 0) count = sums_below<Reductions, kEnd - 1>() + (kIsSum<At<kEnd - 1, Reductions>> ? 1 : 0);
  return count;
}

/// Combines the numbers of a row's threads, one reduction after the other.
template <class Reductions>
HC_DEVICE void over_row_each(Numbers<Reductions>& numbers) {
  for_each_below<Reductions::kCount>([&](auto i) { get<i>(numbers) = over_row(get<i>(numbers), typename At<i, Reductions>::Combine()); });
}

/// The same; several sums share barriers: as many as shared memory has room for (codegen/cuda/launch_config.cpp, kNumbers).
template <class T, class Reductions>
HC_DEVICE void over_row_together(Numbers<Reductions>& numbers) {
  constexpr int kTogether = 4, kSums = sums_below<Reductions, Reductions::kCount>();
  for_each_below<(kSums + kTogether - 1) / kTogether>([&](auto group) {
    constexpr int kFirst = group * kTogether, kCount = kSums - kFirst < kTogether ? kSums - kFirst : kTogether;
    T sums[kCount];
    const auto for_each_sum = [&](auto function) {
      for_each_below<Reductions::kCount>([&](auto i) {
        constexpr int kAt = sums_below<Reductions, i>() - kFirst;
        if constexpr (kIsSum<At<i, Reductions>> && kAt >= 0 && kAt < kCount) function(get<i>(numbers), sums[kAt]);
      });
    };
    for_each_sum([](T& number, T& sum) { sum = number; });
    sums_over_row(sums);
    for_each_sum([](T& number, T& sum) { number = sum; });
  });
  for_each_below<Reductions::kCount>([&](auto i) {
    if constexpr (!kIsSum<At<i, Reductions>>) get<i>(numbers) = over_row(get<i>(numbers), typename At<i, Reductions>::Combine());
  });
}

}  // namespace hindcast::device
#endif
