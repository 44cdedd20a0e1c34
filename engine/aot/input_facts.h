#pragma once
// What guards check of a call's inputs, and the sizes that a trace gives to them.

#include "capture/function/function_trace.h"
#include "engine/cache/dynamic_rule.h"

#include <cstdint>
#include <vector>

namespace hindcast::engine {

/// The facts about one call's inputs that guards check.
struct InputFacts {
  explicit InputFacts(const std::vector<at::Tensor>& inputs, const std::vector<bool>& is_static = {}, bool with_kinds = false);
  capture::Facts row;
  std::vector<capture::FactKind> kinds;  // only if `with_kinds`; sizes that must stay static are marked as strides
  std::vector<uint32_t> first;           // by input: the index of its first fact
};

/// Sizes as expressions: a number if the fact is static, a symbol if it is dynamic.
capture::FunctionTrace::SizesOf sizes_of_inputs(const capture::Facts& row, const std::vector<uint32_t>& first, const DynamicRow& dynamic);

}  // namespace hindcast::engine
