#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace hindcast::python {

/// A tensor whose grad_fn is the node whose user code runs on this thread in a backward of hindcast; none elsewhere. Python has no
/// other way from a C++ node to its object that needs no Python headers.
std::optional<at::Tensor> tensor_of_current_node();

}  // namespace hindcast::python
