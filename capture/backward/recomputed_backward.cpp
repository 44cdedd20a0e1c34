#include "capture/backward/recomputed_backward.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace hindcast::capture {

std::vector<at::Tensor> RecomputedBackward::run(std::span<const at::Tensor> tensors, std::span<const at::Tensor> tangent_tensors,
                                                std::span<const c10::SymInt> sizes) const {
  std::unordered_map<uint32_t, at::Tensor> known;
  for (size_t i = 0; i < given.size(); ++i) known.emplace(given[i].first.index, tensors[i]);
  for (size_t i = 0; i < tangents.size(); ++i) {
    // The program was recorded with contiguous tangents, and its views may have their strides as constants.
    if (tangents[i].defined()) known.emplace(tangents[i].index, tangent_tensors[i].contiguous());
  }
  std::vector<ValueId> wanted;
  std::copy_if(gradients.begin(), gradients.end(), std::back_inserter(wanted), [](ValueId id) { return id.defined(); });
  graph->compute(wanted, known, sizes, bindings.floats);
  std::vector<at::Tensor> found;
  for (const ValueId id : gradients) found.push_back(id.defined() ? known.at(id.index) : at::Tensor());
  return found;
}

}  // namespace hindcast::capture
