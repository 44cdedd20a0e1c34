#include "capture/backward/recomputed_backward.h"

#include "capture/recorder/recorder.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace hindcast::capture {

namespace {

// In the layout that the trace of the function had: the call's program may have run channels-last. Empty without a trace.
std::vector<at::Tensor> as_recorded(const std::vector<RecomputedBackward::Saved>& saved, std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> recorded;
  if (Recorder::current() == nullptr) return recorded;
  for (size_t i = 0; i < saved.size(); ++i) recorded.push_back(saved[i].was_contiguous ? tensors[i].contiguous() : tensors[i]);
  return recorded;
}

}  // namespace

std::vector<at::Tensor> RecomputedBackward::run(std::span<const at::Tensor> tensors, std::span<const at::Tensor> tangent_tensors,
                                                std::span<const c10::SymInt> sizes) const {
  std::unordered_map<uint32_t, at::Tensor> known;
  for (size_t i = 0; i < given.size(); ++i) known.emplace(given[i].first.index, tensors[i]);
  for (size_t i = 0; i < tangents.size(); ++i) {
    // The program was recorded with contiguous tangents, and its views may have their strides as constants.
    if (tangents[i].defined()) known.emplace(tangents[i].index, tangent_tensors[i].contiguous());
  }
  const std::vector<at::Tensor> recorded = as_recorded(saved, tensors.subspan(given.size(), saved.size()));
  std::vector<ValueId> wanted;
  std::copy_if(gradients.begin(), gradients.end(), std::back_inserter(wanted), [](ValueId id) { return id.defined(); });
  graph->compute(wanted, known, sizes, bindings.floats);
  for (size_t i = 0; i < recorded.size(); ++i) {
    const auto computed = known.find(saved[i].value.index);
    if (computed != known.end()) Recorder::current()->note_known(computed->second, recorded[i]);
  }
  std::vector<at::Tensor> found;
  for (const ValueId id : gradients) found.push_back(id.defined() ? known.at(id.index) : at::Tensor());
  return found;
}

}  // namespace hindcast::capture
