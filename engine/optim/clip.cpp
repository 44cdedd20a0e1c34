#include "engine/optim/clip.h"

#include "capture/backward/facts.h"
#include "codegen/kernel/backend.h"
#include "engine/options/use_options.h"

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace hindcast::engine {
namespace {

// A number on the CPU. Making a tensor takes 150 ns, of a step of some tens of us.
at::Tensor number(double value, at::ScalarType type, at::Tensor former) {
  const bool is_reusable = former.defined() && former.use_count() == 1 && former.is_cpu() && former.scalar_type() == type;
  if (!is_reusable) return at::detail::scalar_tensor_static(value, type, at::kCPU);
  if (type == at::kDouble) {
    *former.mutable_data_ptr<double>() = value;
  } else {
    *former.mutable_data_ptr<float>() = static_cast<float>(value);
  }
  return former;
}

// min(max_norm / (norm + 1e-6), 1); NaN stays NaN. On the CPU without operators: three of them take longer than the norm of a small net.
at::Tensor factor_of(const at::Tensor& norm, double max_norm, at::Tensor former) {
  if (!norm.device().is_cpu()) return (max_norm / (norm + 1e-6)).clamp_max(1.0);
  const double factor = max_norm / (*norm.const_data_ptr<double>() + 1e-6);
  return number(factor > 1.0 ? 1.0 : factor, at::kDouble, std::move(former));
}

}  // namespace

std::optional<Clipped> clip(const ClipGradNorm& how, const std::vector<at::Tensor>& gradients, at::Tensor former) {
  if (gradients.empty() || disabled_by_environment()) return std::nullopt;
  const c10::Device device = gradients[0].device();
  const codegen::Backend* const backend = codegen::backend_of(device.type());
  const bool is_ours =
      backend != nullptr && std::all_of(gradients.begin(), gradients.end(), [&](const at::Tensor& gradient) {
        return capture::is_plain(gradient) && gradient.device() == device && gradient.is_floating_point() && gradient.numel() > 0;
      });
  if (!is_ours) return std::nullopt;
  const auto options = at::TensorOptions(device).dtype(at::kDouble);
  const at::Tensor norm =
      how.norm_type == 0 ? at::full({}, static_cast<double>(gradients.size()), options) : backend->vector_norm(gradients, how.norm_type);
  TORCH_CHECK(!how.error_if_nonfinite || std::isfinite(norm.item<double>()), "The total norm of order ", how.norm_type,
              " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and scale the gradients with "
              "the non-finite norm anyway, set `error_if_nonfinite=false`");
  return Clipped{norm, factor_of(norm, how.max_norm, std::move(former))};
}

at::Tensor as_float(const at::Tensor& of, at::Tensor former) {
  const bool is_here = of.is_cpu() && of.scalar_type() == at::kDouble;
  return is_here ? number(*of.const_data_ptr<double>(), at::kFloat, std::move(former)) : of.to(at::kFloat);
}

}  // namespace hindcast::engine
