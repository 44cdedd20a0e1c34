#pragma once
// The history of what a forward program saved, for who differentiates a backward.

#include "engine/aot/specialisation.h"

#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hindcast::engine {

/// What a history begins at.
struct HistoryOf {
  std::shared_ptr<const Specialisation> function;
  std::shared_ptr<const Halves> whole;
  capture::Bindings bindings;
  torch::autograd::edge_list edges;                                          // of the call's node
  std::vector<std::pair<uint32_t, torch::autograd::SavedVariable>> primals;  // of SecondOrder::primals, those that there are
  std::string why_not = {};                                                  // there are no others
};

/// Gives the tensors of SecondOrder::saved, among `saved`, a node that computes them once more, by autograd, where gradients flow into them.
/// That node throws where this cannot be: for random numbers that were not saved, arguments that the function wrote to, and custom Functions.
void give_history(std::vector<at::Tensor>& saved, HistoryOf of);

}  // namespace hindcast::engine
