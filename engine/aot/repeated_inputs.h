#pragma once
// Tensors that a call passes more than once, as in attention(x, x, x). Such a tensor is one input of the program: the function then sees
// its own writes through each of the arguments, and a gradient that it takes of one is that of all.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hindcast::engine {

/// By input: the place of the first that is the same tensor. Empty if no tensor occurs twice.
std::vector<uint32_t> find_repeated(const std::vector<at::Tensor>& inputs);

}  // namespace hindcast::engine
