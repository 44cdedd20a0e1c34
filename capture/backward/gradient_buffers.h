#pragma once
// Gradients that wait at the inputs of nodes until the nodes run, as in the stock engine.

#include "capture/backward/trace_writer.h"
#include "hooks/node_streams.h"

namespace hindcast::capture {

class GradientBuffers {
 public:
  /// `count`: number of flat node inputs. `streams`: nullptr if no gradient crosses streams.
  GradientBuffers(TraceWriter& writer, uint32_t count, hooks::NodeStreams* streams) : writer_(writer), streams_(streams), waiting_(count) {}

  /// Returns and removes the gradients at the inputs of `call`, which runs now.
  std::vector<Traced> take(const NodeCall& call);

  /// The first gradient at an input, or the only one.
  void put(uint32_t input, Traced gradient);

  /// Moves a node's results along its edges. A second gradient at an input is added to the first.
  void distribute(const Collected& collected, const NodeCall& call, std::vector<Traced>& outputs);

 private:
  void add(uint32_t input, Traced gradient, torch::autograd::Node& consumer);

  TraceWriter& writer_;
  hooks::NodeStreams* const streams_;
  std::vector<Traced> waiting_;
};

}  // namespace hindcast::capture
