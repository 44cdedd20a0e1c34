#pragma once
// Creates torch::optim optimizers from the header's struct.

#include "hindcast/compiled_step.h"
#include "hindcast/hindcast_c.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace hindcast::c_api {

/// torch::optim's defaults. Throws std::invalid_argument for an unknown kind.
hindcast_optimizer defaults_of(int32_t kind);
/// Reads the caller's struct. Throws std::invalid_argument if it is invalid.
hindcast_optimizer read_optimizer(const hindcast_optimizer* given);

/// Throws std::invalid_argument for numbers and parameters that the optimizer refuses.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const hindcast_optimizer& as, std::vector<at::Tensor> parameters);
void add_group(torch::optim::Optimizer& optimizer, const hindcast_optimizer& as, std::vector<at::Tensor> parameters);
std::optional<ClipGradNorm> clip_of(const hindcast_optimizer& as);

}  // namespace hindcast::c_api
