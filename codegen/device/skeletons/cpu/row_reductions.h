#pragma once
// Reductions of a row's elements. A sum in one variable loses a bit each time its length doubles, so blocks are reduced first, and a row's
// number is merged from those of its blocks.
//
// A sum is accumulated by the loop over a block's elements. For any other kind that loop stores the block's values, which stay in the L1
// cache, and a function of reductions.h reduces them with vector instructions.
//
// A reduction has: Number, of a row; Part, of a block, as it is accumulated; Block, its stored values; Lanes, the numbers of several short
// rows (short_rows.h), to which elements are added one by one.

#include "codegen/device/reductions.h"
#include "codegen/device/skeletons/cpu/operands.h"

namespace hindcast::device::cpu {

struct Nothing {};

template <class T>
HC_DEVICE void add_part(T& part, T value) {
#pragma clang fp reassociate(on)
  part += value;
}
template <class T>
HC_DEVICE void add_part(Complex<T>& part, Complex<T> value) {
  add_part(part.real, value.real);
  add_part(part.imag, value.imag);
}

template <class T>
struct SumOf {
  using Number = RunningSum<T>;
  using Part = T;
  using Block = Nothing;
  static HC_DEVICE_MEMBER Number none() { return {T(0), T(0)}; }
  static HC_DEVICE_MEMBER Part begin() { return T(0); }
  static HC_DEVICE_MEMBER void add(Part& part, Block&, long, T value) { add_part(part, value); }
  static HC_DEVICE_MEMBER void end(Number& number, const Part& part, const Block&, long) { add_to(number, part); }
  static HC_DEVICE_MEMBER void add_number(Number& number, T value) { add_to(number, value); }
  static HC_DEVICE_MEMBER T result(const Number& number) { return total_of(number); }

  template <int kRows>
  struct Lanes {
    T sums[kRows];
    HC_DEVICE_MEMBER void clear(long row) { sums[row] = T(0); }
    HC_DEVICE_MEMBER void add(long row, long, T value) { sums[row] = device::add<T>(sums[row], value); }
    HC_DEVICE_MEMBER T get(long row) const { return sums[row]; }
  };
};

template <class T>
struct Largest {
  static HC_DEVICE_MEMBER T none() { return -infinity<T>(); }
  static HC_DEVICE_MEMBER T of(T a, T b) { return maximum<T>(a, b); }
  static HC_DEVICE_MEMBER T of_block(const T* values, long count) { return max_of<T>(values, count); }
};
template <class T>
struct Smallest {
  static HC_DEVICE_MEMBER T none() { return infinity<T>(); }
  static HC_DEVICE_MEMBER T of(T a, T b) { return minimum<T>(a, b); }
  static HC_DEVICE_MEMBER T of_block(const T* values, long count) { return min_of<T>(values, count); }
};

template <class T>
struct StoredValues {
  T values[kBlockLength];
};

/// `Of`: Largest or Smallest.
template <template <class> class Of, class T>
struct ExtremeOf {
  using Number = T;
  using Part = Nothing;
  using Block = StoredValues<T>;
  static HC_DEVICE_MEMBER T none() { return Of<T>::none(); }
  static HC_DEVICE_MEMBER Part begin() { return {}; }
  static HC_DEVICE_MEMBER void add(Part&, Block& block, long at, T value) { block.values[at] = value; }
  static HC_DEVICE_MEMBER void end(T& number, const Part&, const Block& block, long count) {
    number = Of<T>::of(number, Of<T>::of_block(block.values, count));
  }
  static HC_DEVICE_MEMBER void add_number(T& number, T value) { number = Of<T>::of(number, value); }
  static HC_DEVICE_MEMBER T result(T number) { return number; }

  template <int kRows>
  struct Lanes {
    T extremes[kRows];
    HC_DEVICE_MEMBER void clear(long row) { extremes[row] = none(); }
    HC_DEVICE_MEMBER void add(long row, long, T value) { extremes[row] = Of<T>::of(extremes[row], value); }
    HC_DEVICE_MEMBER T get(long row) const { return extremes[row]; }
  };
};
template <class T>
using MaxOf = ExtremeOf<Largest, T>;
template <class T>
using MinOf = ExtremeOf<Smallest, T>;

/// Welford's pair.
template <class T>
struct MomentsOf {
  using Number = Moments<T>;
  using Part = Nothing;
  using Block = StoredValues<T>;
  static HC_DEVICE_MEMBER Number none() { return {0, T(0), T(0)}; }
  static HC_DEVICE_MEMBER Part begin() { return {}; }
  static HC_DEVICE_MEMBER void add(Part&, Block& block, long at, T value) { block.values[at] = value; }
  static HC_DEVICE_MEMBER void end(Number& number, const Part&, const Block& block, long count) {
    number = merge<T>(number, moments_of<T>(block.values, count));
  }
  static HC_DEVICE_MEMBER void add_number(Number& number, T value) { number = merge<T>(number, {1, value, T(0)}); }
  static HC_DEVICE_MEMBER Number result(const Number& number) { return number; }

  template <int kRows>
  struct Lanes {
    T means[kRows], m2s[kRows];
    HC_DEVICE_MEMBER void clear(long row) { means[row] = m2s[row] = T(0); }
    HC_DEVICE_MEMBER void add(long row, long elements, T value) {
      const T distance = value - means[row];
      means[row] += distance / (elements + 1);
      m2s[row] += distance * (value - means[row]);
    }
    HC_DEVICE_MEMBER Number get(long row) const { return {0, means[row], m2s[row]}; }
  };
};
template <class T>
HC_DEVICE T mean_of(const Moments<T>& moments) {
  return moments.mean;
}

/// The numbers of some reductions of a pass, and what they have of a block. The stored values are another variable: Clang keeps a struct in
/// memory if it has an array with a variable index.
template <class Reductions, class Numbers = Below<Reductions::kCount>>
struct Reducer;
template <class... Reduction, int... kReduction>
struct Reducer<Types<Reduction...>, Indices<kReduction...>> {
  static constexpr int kCount = sizeof...(Reduction);
  using Blocks = Pack<typename Reduction::Block...>;
  Blocks& blocks;
  Pack<typename Reduction::Number...> numbers;
  Pack<typename Reduction::Part...> parts;

  HC_DEVICE_MEMBER void begin() { ((get<kReduction>(numbers) = Reduction::none()), ...); }
  HC_DEVICE_MEMBER void begin_block() { ((get<kReduction>(parts) = Reduction::begin()), ...); }
  template <int kOne, class T>
  HC_DEVICE_MEMBER void add(Index<kOne>, long at, T value) {
    Nth<kOne, Reduction...>::add(get<kOne>(parts), get<kOne>(blocks), at, value);
  }
  HC_DEVICE_MEMBER void end_block(long count) {
    (Reduction::end(get<kReduction>(numbers), get<kReduction>(parts), get<kReduction>(blocks), count), ...);
  }
  template <int kOne, class T>
  HC_DEVICE_MEMBER void add_number(Index<kOne>, T value) {
    Nth<kOne, Reduction...>::add_number(get<kOne>(numbers), value);
  }
  template <int kOne>
  HC_DEVICE_MEMBER auto result(Index<kOne>) const {
    return Nth<kOne, Reduction...>::result(get<kOne>(numbers));
  }
};

/// Two numbers of a result over rows: Sum, Max or Min.
template <OverRows kOver, class T>
HC_DEVICE T combine(T a, T b) {
  static_assert(kOver == OverRows::Sum || kOver == OverRows::Max || kOver == OverRows::Min, "a mean of numbers that were reduced");
  if constexpr (kOver == OverRows::Sum) {
    return add<T>(a, b);
  } else if constexpr (kOver == OverRows::Max) {
    return maximum<T>(a, b);
  } else {
    return minimum<T>(a, b);
  }
}

}  // namespace hindcast::device::cpu
