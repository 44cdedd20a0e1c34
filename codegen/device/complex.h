#pragma once
// Complex numbers, in the layout of tensors, and their ops: those of arithmetic.h whose formula is the same, and others of their own.
// Special values are those of LibTorch's vector code: a real number that is combined with a complex one is converted to complex, so that
// its imaginary part, a zero, takes part in a product.

#include "codegen/device/arithmetic.h"

namespace hindcast::device {

template <class T>
struct Complex {
  using Real = T;
  T real, imag;

  Complex() = default;
  HC_DEVICE_MEMBER Complex(T re, T im = T(0)) : real(re), imag(im) {}
  template <class S>
  HC_DEVICE_MEMBER explicit Complex(Complex<S> other) : real(static_cast<T>(other.real)), imag(static_cast<T>(other.imag)) {}
  // Copied part by part: Clang passes a struct that it copies as a whole as a vector of two, which prevents vectorisation of loops.
  HC_DEVICE_MEMBER Complex(const Complex& other) : real(other.real), imag(other.imag) {}
  HC_DEVICE_MEMBER Complex& operator=(const Complex& other) {
    real = other.real;
    imag = other.imag;
    return *this;
  }
  HC_DEVICE_MEMBER void operator+=(Complex other) {
    real += other.real;
    imag += other.imag;
  }
};
using complex64 = Complex<float>;
using complex128 = Complex<double>;
static_assert(sizeof(complex64) == 8 && sizeof(complex128) == 16, "two numbers");

template <class T>
HC_DEVICE Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.real + b.real, a.imag + b.imag};
}
template <class T>
HC_DEVICE Complex<T> operator-(Complex<T> a, Complex<T> b) {
  return {a.real - b.real, a.imag - b.imag};
}
template <class T>
HC_DEVICE Complex<T> operator-(Complex<T> a) {
  return {-a.real, -a.imag};
}
template <class T>
HC_DEVICE Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
}
template <class T>
HC_DEVICE bool operator==(Complex<T> a, Complex<T> b) {
  return (a.real == b.real) & (a.imag == b.imag);
}
template <class T>
HC_DEVICE bool operator!=(Complex<T> a, Complex<T> b) {
  return (a.real != b.real) | (a.imag != b.imag);
}

/// By the larger part of the divisor, which neither overflows nor underflows unless the quotient does.
template <class T>
HC_DEVICE Complex<T> operator/(Complex<T> a, Complex<T> b) {
  const bool by_real = magnitude_of(b.real) >= magnitude_of(b.imag);
  const bool by_zero = (b.real == T(0)) & (b.imag == T(0));
  const T large = select(by_real, b.real, b.imag), small = select(by_real, b.imag, b.real);
  const T ratio = small / large;
  const T scale = T(1) / (large + small * ratio);
  const T first = select(by_real, a.real, a.imag), second = select(by_real, a.imag, a.real);
  const T real = (first + second * ratio) * scale;
  const T imag = (second - first * ratio) * scale;
  return {select(by_zero, a.real / magnitude_of(b.real), real),
          select(by_zero, a.imag / magnitude_of(b.real), select(by_real, imag, -imag))};
}

// The ops follow, for T = Complex<float> or Complex<double>.

/// A comparison's result is a number, like all values of a kernel: here a complex one.
template <class C>
HC_FUNCTOR C where(Complex<typename C::Real> condition, C yes, C no) {
  return where(condition != C(0), yes, no);
}
/// The real parts of both.
template <class C>
HC_FUNCTOR C from_parts(C real, C imag) {
  return {real.real, imag.real};
}
template <class C>
HC_FUNCTOR C conj(C a) {
  return {a.real, -a.imag};
}
template <class C>
HC_FUNCTOR C add_product(C a, C b, C c) {
  return a + b * c;
}
/// a + 1 * b, as in LibTorch: if one part of `b` is infinite, the other one becomes NaN.
template <class C>
HC_FUNCTOR C complex_add(C a, C b) {
  return add_product(a, C(1), b);
}
template <class C>
HC_FUNCTOR C complex_sub(C a, C b) {
  return add_product(a, C(-1), b);
}

/// The direction; 0 for 0.
template <class C>
HC_FUNCTOR C complex_sgn(C a) {
  using T = typename C::Real;
  const T re = magnitude_of(a.real), im = magnitude_of(a.imag);
  const T large = select(re < im, im, re), small = select(re < im, re, im);
  const T ratio = small / large;
  const T magnitude = large * exact::sqrt(T(1) + ratio * ratio);
  const bool is_zero = a == C(0);
  return {select(is_zero, T(0), a.real / magnitude), select(is_zero, T(0), a.imag / magnitude)};
}

template <class C>
HC_FUNCTOR C complex_tanh_backward(C gradient, C result) {
  return gradient * conj(C(1) - result * result);
}
template <class C>
HC_FUNCTOR C complex_sigmoid_backward(C gradient, C result) {
  return gradient * conj((C(1) - result) * result);
}

}  // namespace hindcast::device
