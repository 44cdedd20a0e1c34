#pragma once
// Gradients that pass from one stream to another during the run of a plan. The plan's steps are those of the capture, in its order; the
// nodes' streams say which stream each step belongs to.

#include "capture/backward/collected.h"
#include "codegen/plan/plan.h"
#include "engine/plan/backward_plan.h"
#include "hooks/node_streams.h"

#include <cstdint>

namespace hindcast::engine {

class StreamFollower {
 public:
  /// `streams` is nullptr if all nodes are on the CPU. `known_arrivals`: gradients that `streams` already has, where a run resumes behind
  /// user code. References stay valid for the run.
  StreamFollower(const BackwardPlan& plan, const capture::Collected& collected, hooks::NodeStreams* streams, codegen::Slots& slots,
                 uint32_t known_arrivals)
      : plan_(plan), collected_(collected), streams_(streams), slots_(slots), next_arrival_(known_arrivals) {}

  /// Whether any gradient changes its stream; only then the functions below may be called, except enter_again().
  bool is_needed() const { return streams_ != nullptr && streams_->has_inputs(); }

  /// Enters the streams of all nodes that start before `instr` runs: a plan may have no step for the start of a node.
  void follow(uint32_t instr);
  /// Runs a sum of gradients on the stream of the node that gets it.
  void add(const codegen::Step& step);
  /// Restores the current node's stream after user code.
  void enter_again() const {
    if (streams_) [[unlikely]]
      streams_->enter_again();
  }

 private:
  torch::autograd::Node& consumer_of(uint32_t input) const;
  void give_gradients(uint32_t end);
  void enter_node(const capture::Instr& start);

  const BackwardPlan& plan_;
  const capture::Collected& collected_;
  hooks::NodeStreams* const streams_;
  codegen::Slots& slots_;
  uint32_t next_instr_ = 0;  // how far the graph has been followed
  uint32_t next_arrival_;    // an index into BackwardGraph::buffer_events
};

}  // namespace hindcast::engine
