#pragma once
// The engine's processing of a node's results before they flow on: sums them to the size of the input they flow into, casts and checks
// them.

#include <c10/core/SymIntArrayRef.h>
#include <c10/util/DimVector.h>
#include <c10/util/FunctionRef.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>

namespace hindcast::capture {

/// `set_sizes` may replace the sizes of the input that edge `e` leads to by symbols of a trace. Throws LibTorch's error for a wrong result.
void check_results(torch::autograd::Node& node, torch::autograd::variable_list& results,
                   c10::function_ref<void(uint32_t e, c10::SymDimVector& sizes)> set_sizes);

}  // namespace hindcast::capture
