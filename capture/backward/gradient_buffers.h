#pragma once
// Gradients that wait at the inputs of nodes until the nodes' turn, as in the stock engine.

#include "capture/backward/trace_writer.h"
#include "hooks/node_streams.h"

namespace hindcast::capture {

class GradientBuffers {
 public:
  /// `count`: flat node inputs. `streams`: null where no gradient goes from one stream to another.
  GradientBuffers(TraceWriter& writer, uint32_t count, hooks::NodeStreams* streams) : writer_(writer), streams_(streams), waiting_(count) {}

  /// What waits at the inputs of `call`, whose turn it is; nothing does from now on.
  std::vector<Traced> take(const NodeCall& call);

  /// The first gradient at an input, or the only one.
  void put(uint32_t input, Traced gradient);

  /// Moves a node's results to where its edges lead. A second gradient at an input is added to the first.
  void distribute(const Collected& collected, const NodeCall& call, std::vector<Traced>& outputs);

 private:
  void add(uint32_t input, Traced gradient, torch::autograd::Node& consumer);

  TraceWriter& writer_;
  hooks::NodeStreams* const streams_;
  std::vector<Traced> waiting_;
};

}  // namespace hindcast::capture
