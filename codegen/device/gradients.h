#pragma once
// Backward formulas for which LibTorch has separate ops, each as in its vectorised CPU kernel: the same order of operations, the same side
// of every boundary, the same NaN. (For a tensor's last few elements LibTorch's scalar code sometimes treats a NaN differently.) On a card,
// NaN in `self` or `result` gives the results of LibTorch's kernels for CUDA. Operands: the op's tensors in the order of its schema, then
// its numbers.

#include "codegen/device/activations.h"

namespace hindcast::device {

template <class T>
HC_FUNCTOR T threshold_backward(T grad, T self, T threshold) {
  return select(self <= threshold, T(0), grad);
}
template <class T>
HC_FUNCTOR T leaky_relu_backward(T grad, T self, T negative_slope) {
  return select(self > T(0), grad, grad * negative_slope);
}
template <class T>
HC_FUNCTOR T hardtanh_backward(T grad, T self, T min, T max) {
  return select(HC_CARD ? !((self <= min) | (self >= max)) : (self > min) & (self < max), grad, T(0));
}
template <class T>
HC_FUNCTOR T hardsigmoid_backward(T grad, T self) {
  return select((self > T(-3)) & (self < T(3)), grad * T(1.0f / 6.0f), T(0));
}
template <class T>
HC_FUNCTOR T hardswish_backward(T grad, T self) {
  const T inside = select(HC_CARD ? !(self < T(3)) : self >= T(3), grad, grad * (self / T(3) + T(0.5)));
  return select(self <= T(-3), T(0), inside);
}
template <class T>
HC_FUNCTOR T hardshrink_backward(T grad, T self, T lambda) {
  return select(HC_CARD ? !((self >= -lambda) & (self <= lambda)) : (self < -lambda) | (self > lambda), grad, T(0));
}
template <class T>
HC_FUNCTOR T softshrink_backward(T grad, T self, T lambda) {
  return hardshrink_backward(grad, self, lambda);
}

template <class T>
HC_FUNCTOR T elu_backward(T grad, T self, T alpha, T scale, T input_scale) {
  const T negative = grad * input_scale * (alpha * scale) * exp(self * input_scale);
  return select(HC_CARD ? !(self <= T(0)) : self > T(0), grad * scale, negative);
}
/// elu_backward with is_result.
template <class T>
HC_FUNCTOR T elu_backward_from_result(T grad, T result, T alpha, T scale, T input_scale) {
  const T negative = grad * input_scale * (result + alpha * scale);
  return select(HC_CARD ? !(result <= T(0)) : result > T(0), grad * scale, negative);
}

template <class T>
HC_FUNCTOR T tanh_backward(T grad, T output) {
  return grad * (T(1) - output * output);
}
template <class T>
HC_FUNCTOR T sigmoid_backward(T grad, T output) {
  return grad * (T(1) - output) * output;
}
/// With `eps` below 0 nothing is clamped, and the result is NaN outside of 0 to 1.
template <class T>
HC_FUNCTOR T logit_backward(T grad, T self, T eps) {
  const bool clamps = eps >= T(0);
  const T low = select(clamps, eps, T(0));
  const T high = select(clamps, T(1) - eps, T(1));
  const T outside = select(clamps, T(0), nan<T>());
  return select(HC_CARD ? !((self < low) | (self > high)) : (self >= low) & (self <= high), grad / (self * (T(1) - self)), outside);
}
template <class T>
HC_FUNCTOR T silu_backward(T grad, T self) {
  const T gate = T(1) / (T(1) + exp(-self));
  return grad * gate * (T(1) + self * (T(1) - gate));
}
template <class T>
HC_FUNCTOR T mish_backward(T grad, T self) {
  const T gate = T(1) / (T(1) + exp(-self));
  const T tanh_softplus = tanh(log1p(exp(self)));
  return grad * (tanh_softplus + self * gate * (T(1) - tanh_softplus * tanh_softplus));
}
template <class T>
HC_FUNCTOR T softplus_backward(T grad, T self, T beta, T threshold) {
  const T z = exp(self * beta);
  return select(self * beta > threshold, grad, grad * z / (z + T(1)));
}
/// `buffer` is exp(-|self|), which the forward saves on the CPU.
template <class T>
HC_FUNCTOR T log_sigmoid_backward(T grad, T self, T buffer) {
  const bool negative = self < T(0);
  const T max_derivative = select(negative, T(1), T(0));
  const T sign = select(negative, T(1), T(-1));
  return (max_derivative - sign * (buffer / (T(1) + buffer))) * grad;
}

template <class T>
HC_FUNCTOR T gelu_backward(T grad, T self) {
  return grad * normal_gate_slope(self);
}
template <class T>
HC_FUNCTOR T gelu_tanh_backward(T grad, T self) {
  const T square = self * self;
  const T inner = T(kGeluBeta) * (self + T(kGeluKappa) * (square * self));
  const T tanh_inner = tanh(inner);
  const T left = T(0.5) * self;
  const T right = T(1) + tanh_inner;
  const T left_derivative = T(0.5) * right;
  const T tanh_derivative = T(1) - tanh_inner * tanh_inner;
  const T inner_derivative = T(kGeluBeta) * (T(1) + T(3) * T(kGeluKappa) * square);
  return grad * (left_derivative + left * tanh_derivative * inner_derivative);
}

/// `norm` of the losses: 1, or 1 / n for a mean (mse_loss_backward: 2, or 2 / n).
template <class T>
HC_FUNCTOR T mse_loss_backward(T grad, T self, T target, T norm) {
  return norm * (self - target) * grad;
}
template <class T>
HC_FUNCTOR T smooth_l1_backward(T grad, T self, T target, T norm, T beta) {
  const T x = self - target;
  const T slope = select(magnitude_of(x) >= beta, select(x > T(0), T(1), T(-1)), x / beta);
  return norm * slope * grad;
}
template <class T>
HC_FUNCTOR T huber_backward(T grad, T self, T target, T norm, T delta) {
  const T x = self - target;
  const T outside = select(x > T(0), norm, -norm) * grad * delta;
  return select(magnitude_of(x) >= delta, outside, norm * x * grad);
}

/// The same limit as LibTorch's keeps the divisor away from 0.
template <class T>
HC_FUNCTOR T binary_cross_entropy_backward(T grad, T self, T target, T norm) {
  constexpr T kLeast = T(1e-12);
  const T variance = (T(1) - self) * self;
  return grad * (self - target) / select(variance < kLeast, kLeast, variance) * norm;
}

}  // namespace hindcast::device
