#pragma once
// Plain tensors: ordinary dense tensors without a subclass, a lazy bit or other dispatch keys.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace hindcast::codegen {

/// The keys of a plain tensor of this device, for is_plain().
c10::DispatchKeySet plain_keys(c10::Device of);
/// Whether this is a dense tensor of LibTorch's own class, so that adding in place has no effect but on its memory. `plain`: plain_keys()
/// of its device.
bool is_plain(const at::Tensor& tensor, c10::DispatchKeySet plain);

}  // namespace hindcast::codegen
