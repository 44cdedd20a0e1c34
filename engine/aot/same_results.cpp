#include "engine/aot/same_results.h"

#include "base/format.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>

namespace hindcast::engine {
namespace {

double tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
    case at::kComplexDouble:
      return 1e-8;
    case at::kHalf:
    case at::kBFloat16:
      return 5e-2;
    case at::kFloat:
    case at::kComplexFloat:
      return 1e-3;
    default:
      return 0;
  }
}

// The tolerance is relative to the largest element, because of cancellation in sums.
std::optional<std::string> find_difference(const at::Tensor& given, const at::Tensor& expected) {
  if (given.defined() != expected.defined()) return given.defined() ? "it is there" : "it is undefined";
  if (!given.defined()) return std::nullopt;
  if (given.scalar_type() != expected.scalar_type())
    return base::format("dtype {}, expected {}", c10::toString(given.scalar_type()), c10::toString(expected.scalar_type()));
  if (given.sizes() != expected.sizes()) return "its sizes are others";
  if (given.numel() == 0) return std::nullopt;
  const auto wide = given.is_complex() ? at::kComplexDouble : at::kDouble;
  const at::Tensor a = given.detach().to(wide).contiguous(), b = expected.detach().to(wide).contiguous();
  const at::Tensor finite = b.abs().nan_to_num(0, 0, 0);
  const at::Tensor far = (a - b).abs() > tolerance(given.scalar_type()) * finite.max();
  const at::Tensor differs =
      far.logical_or(a.isnan() != b.isnan()).logical_and(a.ne(b)).logical_and((a.isnan().logical_and(b.isnan())).logical_not());
  if (!differs.any().item<bool>()) return std::nullopt;
  const auto first = differs.flatten().to(at::kByte).argmax().item<int64_t>();
  if (given.is_complex()) return base::format("element {} differs", first);
  return base::format("element {} is {}, expected {}", first, a.flatten()[first].item<double>(), b.flatten()[first].item<double>());
}

}  // namespace

std::optional<std::string> find_difference(const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& expected) {
  if (given.size() != expected.size()) return base::format("{} tensors, expected {}", given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (const auto difference = find_difference(given[i], expected[i])) return base::format("of result {}, {}", i, *difference);
  }
  return std::nullopt;
}

}  // namespace hindcast::engine
