#pragma once
// Tensors that are their memory and nothing else.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace hindcast::codegen {

/// What is_plain() compares with, for tensors of this device.
c10::DispatchKeySet plain_keys(c10::Device of);
/// A dense tensor of LibTorch's own class, which adding in place changes and nothing else. `plain`: plain_keys() of its device.
bool is_plain(const at::Tensor& tensor, c10::DispatchKeySet plain);

}  // namespace hindcast::codegen
