#include "engine/diagnosis/nan_guard.h"

#include "base/first_line.h"
#include "capture/backward/trace.h"
#include "capture/graph/replay_check.h"
#include "base/log.h"
#include "engine/diagnosis/non_finite.h"
#include "engine/counters/stats_recorder.h"

namespace hindcast::engine {
namespace {

// Another tensor with the same memory and version counter: one more owner of the tensor itself would keep a run from writing in place, or
// a leaf tensor from stealing it as its `.grad`.
Given alias_of(const at::Tensor& tensor) { return tensor.defined() ? Given(tensor.tensor_data()) : Given(tensor); }

// A failure here, such as out of memory, must not fail the backward.
template <class Do>
void quietly(Do something) noexcept {
  try {
    something();
  } catch (const std::exception& error) {
    HC_LOG(CompiledAutograd, Warning, "nan_guard: a tensor was not checked: {}", base::first_line(error));
  }
}

}  // namespace

NanGuard::NanGuard(const capture::Collected& collected)
    : collected_(collected),
      speaks_(stats_recorder().non_finite_backwards() < kMostMessages &&
              base::enabled(base::Channel::CompiledAutograd, base::Level::Error)) {}

void NanGuard::on_start(const capture::Resume& resume, std::shared_ptr<const capture::BackwardGraph> graph, const capture::Env* env) {
  Leg& leg = legs_.emplace_back();
  leg.call = resume.call;
  leg.stage = resume.stage;
  if (!speaks_) return;
  leg.graph = std::move(graph);
  if (env) leg.env = *env;
  quietly([&] {
    if (leg.graph) leg.inputs.reserve(leg.graph->tensor_count);
    for (const at::Tensor& tensor : resume.values) leg.values.push_back(alias_of(tensor));
    for (const auto& [input, tensor] : resume.buffers) leg.buffers.emplace_back(input, alias_of(tensor));
  });
}

void NanGuard::on_input(capture::ValueId value, const at::Tensor& tensor) {
  if (speaks_) quietly([&] { legs_.back().inputs.emplace_back(value, alias_of(tensor)); });
}

void NanGuard::on_gradient(uint32_t call, capture::ValueId value, const at::Tensor& gradient) {
  ++gradients_;
  quietly([&] {
    if (!has_non_finite(gradient)) return;
    if (not_finite_++ == 0) {
      first_call_ = call;
      if (speaks_) first_ = gradient.tensor_data();
    }
    if (speaks_ && value.defined()) legs_.back().not_finite.push_back(value);
  });
}

NanGuard::~NanGuard() {
  if (not_finite_ == 0) return;
  if (stats_recorder().add_non_finite_backward() >= kMostMessages || !speaks_) return;
  try {
    HC_LOG(CompiledAutograd, Error, "{}", message());
  } catch (const std::exception& error) {  // for example, no memory for the replay
    HC_LOG(CompiledAutograd, Error, "{} of {} gradients are not finite; where they began was not found: {}", not_finite_, gradients_,
           base::first_line(error));
  }
}

std::string NanGuard::message() const {
  const capture::ReplayOnAccelerator alone(collected_.stream ? std::optional(collected_.stream->device_type()) : std::nullopt);
  return base::format("{} of {} gradients are not finite, the first at {} (NodeCall {}): {}\n{}", not_finite_, gradients_,
                      collected_.calls[first_call_].node->name(), first_call_ + 1, describe_values(first_),
                      describe_origin(legs_, collected_));
}

}  // namespace hindcast::engine
