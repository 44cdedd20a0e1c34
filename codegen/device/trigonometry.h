#pragma once
// Sine, cosine, tangent and their inverses. See coverage.h for how large an argument may be.

#include "codegen/device/polynomials.h"
#include "codegen/device/quarter_turns.h"

namespace hindcast::device {

template <class T>
struct Angles;
template <>
struct Angles<float> {
  static constexpr float kTwoOverPi = 0x1.45f306p-1f;
  static constexpr float kHalfPi1 = 0x1.921fb6p+0f, kHalfPi2 = -0x1.777a5cp-25f, kHalfPi3 = -0x1.ee59dap-50f;
  static constexpr float kLargestNear = 0x1p20f;
  static constexpr float kOneOverPi = 0x1.45f306p-2f;
  // pi from below, piece by piece: with all of them positive, no half turns taken from -0 leave -0.
  static constexpr float kPi1 = 0x1.921fb4p+1f, kPi2 = 0x1.4442dp-23f, kPi3 = 0x1.846988p-47f;
  static constexpr float kLargestOfHalfTurns = 0x1p16f;
};
template <>
struct Angles<double> {
  static constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  static constexpr double kHalfPi1 = 0x1.921fb54442d18p+0, kHalfPi2 = 0x1.1a62633145c07p-54, kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
  static constexpr double kLargestNear = 0x1p30;
};

/// The largest angle for sin_near, cos_near and tan_near: for a loop that uses them while it checks for larger ones.
template <class T>
inline constexpr T kNearAngle = Angles<T>::kLargestNear;
template <>
inline constexpr float kNearAngle<float> = Angles<float>::kLargestOfHalfTurns;

/// An angle minus quarter turns: the lowest two bits of `quarters` count them.
template <class T>
struct Reduced {
  typename Float<T>::Bits quarters;
  Pair<T> angle;
};

/// Valid up to kLargestNear: the count of quarter turns must be exact, and the angle hardly more than an eighth turn.
template <class T>
HC_DEVICE Reduced<T> reduce_near(T x) {
  using A = Angles<T>;
  const T rounded = exact::fma(x, A::kTwoOverPi, Float<T>::kRounder);
  const T n = rounded - Float<T>::kRounder;
  // This difference is exact, and so coarse that the next sum, of any two sizes, loses nothing that `low` does not bring back.
  const T first = exact::fma(n, -A::kHalfPi1, x);
  const Pair<T> second = exact_product(n, A::kHalfPi2);
  const T high = first - second.high;
  const T low = ((first - high) - second.high) - exact::fma(n, A::kHalfPi3, second.low);
  return {bits_of(rounded), {high, low}};
}

/// Adds x times a piece of 2 / pi, less whole turns; the piece has so few digits that this is exact.
HC_DEVICE Pair<double> add_quarters(Pair<double> sum, double x, double piece) {
  const double quarters = x * piece;
  const double rest = exact::fma(exact::round(0.25 * quarters), -4.0, quarters);
  const Pair<double> added = ordered_sum(sum.high, rest);
  return {added.high, sum.low + added.low};
}

/// Valid for every float: 203 binary digits of 2 / pi.
HC_DEVICE Reduced<float> reduce_far(float small_x) {
  const double x = small_x;
  Pair<double> sum = {0.0, 0.0};
  sum = add_quarters(sum, x, 0x1.45f306dp-1);
  sum = add_quarters(sum, x, 0x1.9391054p-30);
  sum = add_quarters(sum, x, 0x1.4fe13abp-59);
  sum = add_quarters(sum, x, 0x1.d1f534dp-88);
  sum = add_quarters(sum, x, 0x1.b81b6c5p-117);
  sum = add_quarters(sum, x, 0x1.5993c4p-148);
  sum = add_quarters(sum, x, 0x1.c820ff2p-175);
  const double n = exact::round(sum.high);
  const double angle = ((sum.high - n) + sum.low) * Angles<double>::kHalfPi1;
  const float high = static_cast<float>(angle);
  const uint64 quarters = bits_of(n + Float<double>::kRounder);
  return {static_cast<uint32>(quarters), {high, static_cast<float>(angle - high)}};
}

/// Valid for every double.
HC_DEVICE Reduced<double> reduce_far(double x) {
  using A = Angles<double>;
  const double size = magnitude_of(x);
  const bool small = size < 0.5, backwards = x < 0.0;
  const WideInteger turns = quarter_turns_of(select(small, 0.5, size));
  const uint64 quarters = (turns.high + (uint64(1) << 61)) >> 62;
  // Without the two digits before its point, and read as a signed number, the rest lies between -1/2 and 1/2.
  const uint64 high = (turns.high << 2) | (turns.low >> 62), low = turns.low << 2;
  const Pair<double> first = ordered_sum(static_cast<int32>(high >> 32) * 0x1p-32, static_cast<uint32>(high) * 0x1p-64);
  const double second = static_cast<uint32>(low >> 32) * 0x1p-96 + static_cast<uint32>(low) * 0x1p-128;
  const Pair<double> sum = product(Pair<double>{first.high, first.low + second}, Pair<double>{A::kHalfPi1, A::kHalfPi2});
  const Pair<double> angle = ordered_sum(sum.high, sum.low);
  // x - x is NaN if x is not finite.
  const double far_high = select(backwards, -angle.high, angle.high) + (x - x), far_low = select(backwards, -angle.low, angle.low);
  return {select(backwards, uint64(0) - quarters, quarters), {select(small, x, far_high), select(small, 0.0, far_low)}};
}

template <class T>
HC_DEVICE Reduced<T> reduce_angle(T x) {
#if HC_CUDA
  if (magnitude_of(x) <= Angles<T>::kLargestNear) return reduce_near(x);
#endif
  // On a CPU a branch would prevent vectorisation, and computing both ways would cost more than this one.
  return reduce_far(x);
}

template <class T>
HC_DEVICE T sin_of_reduced(Pair<T> angle) {
  const T z = angle.high * angle.high;
  return angle.high + exact::fma(z * angle.high, polynomial::sin_tail(z), angle.low);
}

template <class T>
HC_DEVICE T cos_of_reduced(Pair<T> angle) {
  const T z = exact::multiply(angle.high, angle.high);
  const Pair<T> start = ordered_sum(T(1), T(-0.5) * z);
  return start.high + (start.low + exact::fma(z * z, polynomial::cos_tail(z), -angle.high * angle.low));
}

/// sin(angle + quarters * pi / 2).
template <class T>
HC_DEVICE T sin_of_quarters(Pair<T> angle, typename Float<T>::Bits quarters) {
  using Bits = typename Float<T>::Bits;
  const T value = select((quarters & Bits(1)) != Bits(0), cos_of_reduced(angle), sin_of_reduced(angle));
  constexpr int kToSign = sizeof(Bits) * 8 - 2;
  return bit_cast<T>(bits_of(value) ^ ((quarters & Bits(2)) << kToSign));
}

template <class T>
HC_FUNCTOR T sin(T x) {
  const Reduced<T> reduced = reduce_angle(x);
  return select(x == T(0), x, sin_of_quarters(reduced.angle, reduced.quarters));
}

template <class T>
HC_FUNCTOR T cos(T x) {
  const Reduced<T> reduced = reduce_angle(x);
  return sin_of_quarters(reduced.angle, reduced.quarters + 1);
}

/// sin(x) / x - 1 for |x| hardly more than pi / 2; +0 for both zeros.
HC_DEVICE float sin_ratio_less_one(float x) {
  const float z = x * x;
  // Without + 0 it would be -0 for x = 0.
  const float rest = exact::fma(z, polynomial::sin_of_half_turn_rest(z), 0.0f);
  // Most of the result is -x^2 / 8. It is added without the error that z has, which would be too much near pi / 2.
  return exact::fma(x, -0.125f * x, rest);
}

/// sin(x - n pi), or its opposite if the integer in the lowest bits of `rounded` is odd.
HC_DEVICE float sin_less_half_turns(float x, float n, float rounded) {
  using A = Angles<float>;
  // Exact, but for small angles of cos, from which half of kPi1 is taken: there sine is flat.
  const float first = exact::fma(n, -A::kPi1, x);
  const float nearly = exact::fma(n, -A::kPi2, first);
  // The last term is there for what cancels to a small angle; to others, up to kLargestOfHalfTurns, it adds a few hundredths of an ulp.
  // So the ratio, about 1 for small ones, need not wait for it.
  const float angle = exact::fma(n, -A::kPi3, nearly);
  const float sine = exact::fma(angle, sin_ratio_less_one(nearly), angle);
  return bit_cast<float>(bits_of(sine) ^ (bits_of(rounded) << 31));
}

HC_DEVICE float sin_by_half_turns(float x) {
  constexpr float kRounder = Float<float>::kRounder;
  const float rounded = exact::fma(x, Angles<float>::kOneOverPi, kRounder);
  return sin_less_half_turns(x, rounded - kRounder, rounded);
}

HC_DEVICE float cos_by_half_turns(float x) {
  constexpr float kRounder = Float<float>::kRounder;
  const float rounded = exact::fma(x, Angles<float>::kOneOverPi, 0.5f) + kRounder;
  return sin_less_half_turns(x, (rounded - kRounder) - 0.5f, rounded);
}

/// sin and cos for |x| <= kNearAngle<T>, and NaN for NaN. Beyond, they may give anything. Those of float go by half turns: one
/// polynomial where quarter turns take two, and one float for the angle. This takes little more than half of the time, for 0.6 ulp.
template <class T>
HC_FUNCTOR T sin_near(T x) {
  if constexpr (is_same<T, float>) {
    return sin_by_half_turns(x);
  } else {
    const Reduced<T> reduced = reduce_near(x);
    return select(x == T(0), x, sin_of_quarters(reduced.angle, reduced.quarters));
  }
}

template <class T>
HC_FUNCTOR T cos_near(T x) {
  if constexpr (is_same<T, float>) {
    return cos_by_half_turns(x);
  } else {
    const Reduced<T> reduced = reduce_near(x);
    return sin_of_quarters(reduced.angle, reduced.quarters + 1);
  }
}

template <class T>
HC_DEVICE T tan_of_reduced(const Reduced<T>& reduced) {
  const T r = reduced.angle.high;
  const T z = r * r;
  const Pair<T> tangent = ordered_sum(r, exact::fma(z * r, polynomial::tan_tail(z), exact::fma(z, reduced.angle.low, reduced.angle.low)));
  const bool odd = (reduced.quarters & 1) != 0;
  const T cotangent = -quotient(Pair<T>{T(1), T(0)}, tangent);
  return select(odd, cotangent, tangent.high);
}

template <class T>
HC_FUNCTOR T tan(T x) {
  return select(x == T(0), x, tan_of_reduced(reduce_angle(x)));
}

/// For all angles, by a call: for bodies with many of these, which would take long to compile and hardly ever get far angles.
template <class T>
HC_DEVICE_CALLED T sin_called(T x) {
  return sin(x);
}
template <class T>
HC_DEVICE_CALLED T cos_called(T x) {
  return cos(x);
}
template <class T>
HC_DEVICE_CALLED T tan_called(T x) {
  return tan(x);
}

/// Like sin_near.
template <class T>
HC_FUNCTOR T tan_near(T x) {
  return select(x == T(0), x, tan_of_reduced(reduce_near(x)));
}

/// atan(t) for 0 <= t <= 1.
template <class T>
HC_DEVICE Pair<T> atan_of_ratio(T t) {
  const T z = t * t;
  return ordered_sum(t, z * t * polynomial::atan_tail(z));
}

template <class T>
HC_FUNCTOR T atan(T x) {
  using A = Angles<T>;
  const T size = magnitude_of(x);
  const bool steep = size > T(1);
  const Pair<T> angle = atan_of_ratio(select(steep, T(1) / size, size));
  const Pair<T> rest = ordered_sum(A::kHalfPi1, -angle.high);
  return with_sign_of(select(steep, rest.high + (rest.low + (A::kHalfPi2 - angle.low)), angle.high), x);
}

template <class T>
HC_FUNCTOR T atan2(T y, T x) {
  using A = Angles<T>;
  const T height = magnitude_of(y), width = magnitude_of(x);
  const bool steep = height > width;
  const T larger = select(steep, height, width), smaller = select(steep, width, height);
  // 0 / 0 counts as 0, infinity / infinity as 1.
  const T ratio = select(smaller == larger, select(larger == T(0), T(0), T(1)), smaller / larger);
  const Pair<T> angle = atan_of_ratio(ratio);
  const Pair<T> steep_sum = ordered_sum(A::kHalfPi1, -angle.high);
  const T steep_low = steep_sum.low + (A::kHalfPi2 - angle.low);
  const Pair<T> first = {select(steep, steep_sum.high, angle.high), select(steep, steep_low, angle.low)};
  const Pair<T> back_sum = ordered_sum(T(2) * A::kHalfPi1, -first.high);
  const T back = back_sum.high + (back_sum.low + (T(2) * A::kHalfPi2 - first.low));
  const bool backwards = (bits_of(x) & Float<T>::kSign) != 0;
  const T result = with_sign_of(select(backwards, back, first.high + first.low), y);
  return select(x != x || y != y, x + y, result);
}

template <class T>
struct ArcParts {
  bool far;     // |x| > 1/2
  Pair<T> arc;  // asin(|x|), or if far asin(sqrt((1 - |x|) / 2))
};

template <class T>
HC_DEVICE ArcParts<T> split_arc(T size) {
  const bool far = size > T(0.5);
  const T half_rest = T(0.5) * (T(1) - size);
  const T root = exact::sqrt(half_rest);
  const T root_low = select(half_rest > T(0), exact::fma(-root, root, half_rest) / (T(2) * root), T(0));
  const T z = select(far, half_rest, size * size);
  const T base = select(far, root, size);
  const T low = select(far, root_low, T(0));
  return {far, ordered_sum(base, exact::fma(z * base, polynomial::asin_tail(z), low))};
}

template <class T>
HC_FUNCTOR T asin(T x) {
  using A = Angles<T>;
  const ArcParts<T> parts = split_arc(magnitude_of(x));
  const Pair<T> sum = ordered_sum(A::kHalfPi1, T(-2) * parts.arc.high);
  const T far = sum.high + (sum.low + (A::kHalfPi2 - T(2) * parts.arc.low));
  return with_sign_of(select(parts.far, far, parts.arc.high), x);
}

template <class T>
HC_FUNCTOR T acos(T x) {
  using A = Angles<T>;
  const ArcParts<T> parts = split_arc(magnitude_of(x));
  const bool negative = x < T(0);
  const T sign = select(negative, T(-1), T(1));
  const Pair<T> near_sum = ordered_sum(A::kHalfPi1, -sign * parts.arc.high);
  const T near = near_sum.high + (near_sum.low + (A::kHalfPi2 - sign * parts.arc.low));
  const Pair<T> behind_sum = ordered_sum(T(2) * A::kHalfPi1, T(-2) * parts.arc.high);
  const T behind = behind_sum.high + (behind_sum.low + T(2) * (A::kHalfPi2 - parts.arc.low));
  return select(parts.far, select(negative, behind, T(2) * parts.arc.high), near);
}

}  // namespace hindcast::device
