#include "engine/call/streams.h"

#include "base/check.h"
#include "base/log.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

namespace hindcast::engine {
namespace {

torch::autograd::Node& consumer_of(const capture::Collected& collected, uint32_t input) {
  const auto call = std::find_if(collected.calls.begin(), collected.calls.end(), [input](const capture::NodeCall& one) {
    return one.first_input <= input && input < one.first_input + one.input_count;
  });
  HC_CHECK(call != collected.calls.end());
  return *call->node;
}

}  // namespace

hooks::NodeStreams streams_of(const capture::Collected& collected) {
  return {collected.stream->device_type(), collected.has_one_stream ? 0 : collected.input_total};
}

void begin(hooks::NodeStreams& streams, const capture::Collected& collected, const capture::Resume& start) {
  for (const auto& [input, gradient] : start.buffers) {
    if (!gradient.defined()) continue;
    torch::autograd::Node& consumer = consumer_of(collected, input);
    if (streams.has_inputs()) {
      streams.put_root(input, gradient, consumer);
    } else {
      streams.give(gradient, consumer);
    }
  }
  if (!streams.has_inputs()) streams.enter(collected.stream);
}

void join(const hooks::NodeStreams& streams, const capture::Collected& collected) {
  if (collected.has_one_stream) return streams.join(*collected.stream);
  c10::SmallVector<c10::Stream, 4> joined;
  for (const capture::NodeCall& call : collected.calls) {
    const bool is_leaf = call.needed && call.edge_count == 0;
    if (!is_leaf && !call.has_captures) continue;
    const auto stream = call.node->stream();
    if (!stream || std::find(joined.begin(), joined.end(), *stream) != joined.end()) continue;
    joined.push_back(*stream);
    streams.join(*stream);
  }
}

void require_plan_as_captured(Found& found) {
  if (found.plan->is_as_captured()) return;
  HC_LOG(Fusion, Info, "graph {}: without kernels this time, since its nodes have several streams", found.plan->graph().id);
  found.use_plan_as_captured();
}

}  // namespace hindcast::engine
