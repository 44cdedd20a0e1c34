#include "capture/recorder/symbolic_composites.h"

#include <ATen/ops/_upsample_bicubic2d_aa_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_ops.h>
#include <ATen/ops/upsample_bicubic2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_linear1d_ops.h>
#include <ATen/ops/upsample_nearest1d_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>
#include <ATen/ops/upsample_nearest3d_ops.h>
#include <ATen/ops/upsample_trilinear3d_ops.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

namespace hindcast::capture {
namespace {

using at::Tensor;
using c10::SymInt;
using OutputSize = at::OptionalSymIntArrayRef;
using ScaleFactors = std::optional<at::ArrayRef<double>>;

// A size times a scale, toward zero, as ATen computes it in double. nullopt for scales that ATen refuses.
std::optional<SymInt> scaled(const SymInt& size, double scale) {
  constexpr double kMost = 1 << 20;
  if (!(scale > 0 && scale < kMost)) return std::nullopt;
  if (const auto number = size.maybe_as_int()) return SymInt(static_cast<int64_t>(static_cast<double>(*number) * scale));
  if (scale == std::floor(scale)) return size * static_cast<int64_t>(scale);
  int exponent = 0;
  const bool is_power_of_two = std::frexp(scale, &exponent) == 0.5;
  if (is_power_of_two && 1 / scale < kMost) return size / static_cast<int64_t>(1 / scale);
  return SymInt((c10::SymFloat(size) * scale).toSymNodeImpl()->floor());
}

// The sizes of the result, if its dims can be symbolic. ATen reports all errors.
std::optional<c10::SymDimVector> sizes_after(c10::DispatchKeySet keys, const Tensor& input, OutputSize output_size, ScaleFactors scales,
                                             size_t dims) {
  const auto is_symbol = [](const SymInt& size) { return size.is_symbolic(); };
  const bool is_wanted = is_symbolic(input) || (output_size && std::any_of(output_size->begin(), output_size->end(), is_symbol));
  const bool is_right = input.dim() == static_cast<int64_t>(dims) + 2 && output_size.has_value() != scales.has_value() &&
                        (output_size ? output_size->size() : scales->size()) == dims;
  if (!is_wanted || !is_right || others_come_first(keys)) return std::nullopt;
  if (output_size) return c10::SymDimVector(output_size->begin(), output_size->end());
  c10::SymDimVector sizes;
  for (size_t i = 0; i < dims; ++i) {
    const auto size = scaled(input.sym_size(static_cast<int64_t>(i) + 2), (*scales)[i]);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

std::optional<double> scale_of(const ScaleFactors& scales, size_t dim) {
  return scales ? std::optional<double>((*scales)[dim]) : std::nullopt;
}

template <class Vec, class Op, size_t... kDims>
Tensor upsample(c10::DispatchKeySet keys, const Tensor& input, OutputSize output_size, ScaleFactors scales) {
  const auto sizes = sizes_after(keys, input, output_size, scales, sizeof...(kDims));
  if (!sizes) return Vec::redispatch(below_symbolic_composites(keys), input, output_size, scales);
  return Op::call(input, *sizes, scale_of(scales, kDims)...);
}

template <class Vec, class Op, size_t... kDims>
Tensor upsample_aligned(c10::DispatchKeySet keys, const Tensor& input, OutputSize output_size, bool align_corners, ScaleFactors scales) {
  const auto sizes = sizes_after(keys, input, output_size, scales, sizeof...(kDims));
  if (!sizes) return Vec::redispatch(below_symbolic_composites(keys), input, output_size, align_corners, scales);
  return Op::call(input, *sizes, align_corners, scale_of(scales, kDims)...);
}

}  // namespace

void implement_symbolic_upsampling(torch::Library& aten) {
  namespace ops = at::_ops;
  aten.impl("upsample_nearest1d.vec", TORCH_FN((upsample<ops::upsample_nearest1d_vec, ops::upsample_nearest1d, 0>)));
  aten.impl("upsample_nearest2d.vec", TORCH_FN((upsample<ops::upsample_nearest2d_vec, ops::upsample_nearest2d, 0, 1>)));
  aten.impl("upsample_nearest3d.vec", TORCH_FN((upsample<ops::upsample_nearest3d_vec, ops::upsample_nearest3d, 0, 1, 2>)));
  aten.impl("_upsample_nearest_exact1d.vec", TORCH_FN((upsample<ops::_upsample_nearest_exact1d_vec, ops::_upsample_nearest_exact1d, 0>)));
  aten.impl("_upsample_nearest_exact2d.vec",
            TORCH_FN((upsample<ops::_upsample_nearest_exact2d_vec, ops::_upsample_nearest_exact2d, 0, 1>)));
  aten.impl("_upsample_nearest_exact3d.vec",
            TORCH_FN((upsample<ops::_upsample_nearest_exact3d_vec, ops::_upsample_nearest_exact3d, 0, 1, 2>)));
  aten.impl("upsample_linear1d.vec", TORCH_FN((upsample_aligned<ops::upsample_linear1d_vec, ops::upsample_linear1d, 0>)));
  aten.impl("upsample_bilinear2d.vec", TORCH_FN((upsample_aligned<ops::upsample_bilinear2d_vec, ops::upsample_bilinear2d, 0, 1>)));
  aten.impl("_upsample_bilinear2d_aa.vec",
            TORCH_FN((upsample_aligned<ops::_upsample_bilinear2d_aa_vec, ops::_upsample_bilinear2d_aa, 0, 1>)));
  aten.impl("upsample_bicubic2d.vec", TORCH_FN((upsample_aligned<ops::upsample_bicubic2d_vec, ops::upsample_bicubic2d, 0, 1>)));
  aten.impl("_upsample_bicubic2d_aa.vec", TORCH_FN((upsample_aligned<ops::_upsample_bicubic2d_aa_vec, ops::_upsample_bicubic2d_aa, 0, 1>)));
  aten.impl("upsample_trilinear3d.vec", TORCH_FN((upsample_aligned<ops::upsample_trilinear3d_vec, ops::upsample_trilinear3d, 0, 1, 2>)));
}

}  // namespace hindcast::capture
