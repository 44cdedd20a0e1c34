#include "capture/backward/check_results.h"

#include <torch/csrc/autograd/engine.h>

#include <string>

namespace hindcast::capture {

void check_results(torch::autograd::Node& node, torch::autograd::variable_list& results,
                   c10::function_ref<void(uint32_t e, c10::SymDimVector& sizes)> set_sizes) {
  auto metadata = torch::autograd::collect_input_metadata(node.next_edges());
  for (uint32_t e = 0; e < metadata.size(); ++e) {
    if (metadata[e]) set_sizes(e, metadata[e]->mutable_shape_as_dim_vector());
  }
  torch::autograd::validate_outputs(metadata, results,
                                    [&](const std::string& text) { return "Function " + node.name() + " returned an " + text; });
}

}  // namespace hindcast::capture
