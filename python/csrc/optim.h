#pragma once
// The operators behind hindcast.compiled_step(): one call updates the parameters of a group. Python owns the state, and passes it as lists.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace hindcast::python {

/// The number of parameters updated; the indices of those that the optimizer's own code must update; and the reasons. Parameters without a
/// gradient are in neither.
using Updated = std::tuple<int64_t, std::vector<int64_t>, std::vector<std::string>>;

/// The factor that gradients are multiplied by as they are read, as float64 and as float32. Undefined if gradients are not scaled.
struct GradientFactor {
  static GradientFactor of(const std::optional<at::Tensor>& factor);
  GradientFactor operator-() const;
  at::Tensor factor, as_float;
};

/// A list of state is empty if the settings do not need that state. `maximize` negates gradients. Steps are counted in `steps`.
///
/// `first`: sorted indices of the parameters whose buffer is set to the gradient, whatever it holds.
Updated update_sgd(const GradientFactor& factor, at::TensorList parameters, at::TensorList buffers, at::IntArrayRef first, double lr,
                   double momentum, double dampening, double weight_decay, bool nesterov, bool maximize);
Updated update_adam(const GradientFactor& factor, at::TensorList parameters, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                    at::TensorList max_exp_avg_sqs, at::TensorList steps, double lr, double beta1, double beta2, double eps,
                    double weight_decay, bool is_decoupled, bool amsgrad, bool maximize);
Updated update_rmsprop(const GradientFactor& factor, at::TensorList parameters, at::TensorList square_avgs, at::TensorList buffers,
                       at::TensorList grad_avgs, at::TensorList steps, double lr, double alpha, double eps, double weight_decay,
                       double momentum, bool centered, bool maximize);
Updated update_adagrad(const GradientFactor& factor, at::TensorList parameters, at::TensorList sums, at::TensorList steps, double lr,
                       double lr_decay, double weight_decay, double eps, bool maximize);

/// The norm of all gradients, in their dtype, and the factor for the operators above. Empty if torch.nn.utils.clip_grad_norm_ must do it.
std::vector<at::Tensor> clip_gradients(at::TensorList parameters, double max_norm, double norm_type);

}  // namespace hindcast::python
