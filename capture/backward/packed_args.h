#pragma once
// Puts stand-ins and symbols into the packed arguments of a node's functional form.

#include "capture/backward/collected.h"
#include "capture/backward/node_calls.h"
#include "hindcast/symbols.h"

#include <functional>

namespace hindcast::capture {

/// Replacements for the node's k-th tensor, SymInt and scalar. An empty function leaves all of a kind unchanged. Scalars of a custom
/// Function are the numbers in its saved_data, in the order of their keys; its SymInts are sizes of its arguments and results.
struct Substitution {
  std::function<at::Tensor(uint32_t slot)> tensor;  // slot: number of the tensor within the node
  std::function<c10::SymInt(uint32_t k, int64_t value)> size;
  uint32_t sizes = 0;                                                            // number of collected SymInts
  std::function<std::optional<c10::SymFloat>(uint32_t k, double value)> scalar;  // nullopt: unchanged
};

/// Returns the node's packed arguments with substitutions. Throws Unsupported if they do not have the tensors, sizes and
/// scalars that were collected.
std::vector<c10::IValue> substitute(const PackedNode& packed, const NodeCall& call, const Substitution& substitution);

}  // namespace hindcast::capture
