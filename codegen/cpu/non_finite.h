#pragma once

#include <ATen/core/Tensor.h>

namespace hindcast::codegen::cpu {

/// As Backend::has_non_finite(), on LibTorch's intra-op threads.
bool has_non_finite(const at::Tensor& dense);

}  // namespace hindcast::codegen::cpu
