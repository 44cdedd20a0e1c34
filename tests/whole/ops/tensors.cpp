#include "tests/whole/ops/tensors.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <limits>

namespace hindcast::tests::ops {
namespace {

at::Tensor transposed(const at::Tensor& t) { return t.dim() < 2 ? t : t.transpose(0, -1).contiguous().transpose(0, -1); }

/// Stride 0 in the first dimension: all its rows become the first one.
at::Tensor expanded(const at::Tensor& t) { return t.dim() == 0 || t.size(0) == 0 ? t : t.narrow(0, 0, 1).clone().expand(t.sizes()); }

/// Every second row of a larger tensor, from the second one on.
at::Tensor sliced(const at::Tensor& t) {
  if (t.dim() == 0) return at::stack({t, t})[1];
  return at::stack({t, t}, 1).flatten(0, 1).slice(0, 1, std::nullopt, 2);
}

at::Tensor channels_last(const at::Tensor& t) {
  if (t.dim() == 4) return t.contiguous(at::MemoryFormat::ChannelsLast);
  return t.dim() == 5 ? t.contiguous(at::MemoryFormat::ChannelsLast3d) : t;
}

at::Tensor conjugated(const at::Tensor& t) { return t.is_complex() ? t.conj_physical().conj() : t; }

at::Tensor with_layout(const at::Tensor& t, Operands operands) {
  switch (operands) {
    case Operands::Contiguous:
      return t;
    case Operands::Transposed:
    case Operands::TransposeOfLeaf:
      return transposed(t);
    case Operands::Expanded:
    case Operands::ExpandOfLeaf:
      return expanded(t);
    case Operands::Sliced:
      return sliced(t);
    case Operands::ChannelsLast:
      return channels_last(t);
    case Operands::Conjugated:
      return conjugated(t);
    case Operands::Negated:
      return at::_neg_view(t.neg());
  }
  return t;
}

/// Zeros at every third place, a NaN at the last.
at::Tensor with_special_values(const at::Tensor& t) {
  if (t.numel() == 0) return t;
  at::Tensor flat = t.contiguous().clone().flatten();
  flat.slice(0, 0, std::nullopt, 3).zero_();
  flat.slice(0, flat.numel() - 1).fill_(std::numeric_limits<double>::quiet_NaN());
  return flat.view(t.sizes());
}

}  // namespace

TensorMaker::TensorMaker(const Setting& setting) : setting_(setting), generator_(at::detail::createCPUGenerator(setting.seed)) {}

at::Tensor TensorMaker::normal(at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto wide = c10::isComplexType(dtype) ? at::kComplexDouble : at::kDouble;
  return at::randn(sizes, generator_, at::TensorOptions(wide)).to(device_of_operands, dtype);
}

at::Tensor TensorMaker::uniform(double low, double high, at::IntArrayRef sizes) {
  at::Tensor values = at::rand(sizes, generator_, at::kDouble) * (high - low) + low;
  if (c10::isComplexType(setting_.dtype)) values = at::complex(values, at::rand(sizes, generator_, at::kDouble) * (high - low) + low);
  return values.to(device_of_operands, setting_.dtype);
}

at::Tensor TensorMaker::positive_definite(at::IntArrayRef sizes) {
  const auto wide = c10::isComplexType(setting_.dtype) ? at::kComplexDouble : at::kDouble;
  const at::Tensor factor = normal(sizes, wide);
  return (at::matmul(factor, factor.mH()) + sizes.back() * at::eye(sizes.back(), factor.options())).to(setting_.dtype);
}

at::Tensor TensorMaker::index(int64_t bound, at::IntArrayRef sizes) {
  return at::randint(bound, sizes, generator_, at::kLong).to(device_of_operands);
}

at::Tensor TensorMaker::mask(at::IntArrayRef sizes) { return at::randint(2, sizes, generator_, at::kBool).to(device_of_operands); }

at::Tensor TensorMaker::permutation(int64_t n) { return at::randperm(n, generator_, at::kLong).to(device_of_operands); }

at::Tensor TensorMaker::leaf(at::Tensor values, bool special_values) {
  if (values.layout() != at::kStrided) return new_leaf(values);
  if (special_values && setting_.values == Values::ZerosAndNaN) values = with_special_values(values);
  values = with_layout(values, setting_.operands);
  if (setting_.operands == Operands::TransposeOfLeaf && values.dim() >= 2) return new_leaf(values.transpose(0, -1)).transpose(0, -1);
  if (setting_.operands == Operands::ExpandOfLeaf && values.dim() >= 1 && values.size(0) > 0)
    return new_leaf(values.narrow(0, 0, 1)).expand(values.sizes());
  return new_leaf(values);
}

at::Tensor TensorMaker::new_leaf(const at::Tensor& values) {
  const bool requires_grad = !setting_.only_leaf || *setting_.only_leaf == leaves_.size();
  leaves_.push_back(values.detach().set_requires_grad(requires_grad));
  return leaves_.back();
}

at::Tensor TensorMaker::constant(at::Tensor values) {
  const c10::NoGradGuard no_grad;
  return values.layout() == at::kStrided ? with_layout(values, setting_.operands).detach() : values;
}

at::Tensor root_gradient(const at::Tensor& output, Root root, uint64_t seed) {
  const c10::NoGradGuard no_grad;
  const auto wide = output.is_complex() ? at::kComplexDouble : at::kDouble;
  const at::Tensor values = at::randn(output.sizes(), at::detail::createCPUGenerator(seed + 1000), at::TensorOptions(wide))
                                .to(output.device(), output.scalar_type());
  switch (root) {
    case Root::Loss:
    case Root::Contiguous:
      return values;
    case Root::Transposed:
      return transposed(values);
    case Root::Expanded:
      return at::ones({}, values.options()).expand(values.sizes());
    case Root::Sliced:
      return sliced(values);
    case Root::ChannelsLast:
      return channels_last(values);
    case Root::Conjugated:
      return conjugated(values);
    case Root::Zeros:
      return at::zeros_like(values);
    case Root::NaN:
      return with_special_values(values);
  }
  return values;
}

}  // namespace hindcast::tests::ops
