#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace hindcast::python {

/// A tensor whose grad_fn is the node whose user code runs on this thread in a backward of hindcast; nullopt elsewhere. Without Python's
/// headers, there is no other way from a C++ node to its Python object.
std::optional<at::Tensor> tensor_of_current_node();

}  // namespace hindcast::python
