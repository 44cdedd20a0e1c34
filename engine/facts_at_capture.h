#pragma once

#include "capture/backward/collect.h"
#include "capture/backward/trace.h"
#include "engine/variants.h"

#include <vector>

namespace hindcast::engine {

/// What is known of a call when its capture begins. The capture releases nodes and tensors on its way, so these are copies.
struct FactsAtCapture {
  /// `is_wanted`: the call is to be recorded, so that it counts where facts came from.
  FactsAtCapture(const capture::Collected& from, const capture::CollectOptions& options, const capture::Resume& resume, bool is_wanted);

  CallFacts values() const { return {collected, resumed}; }
  CallOrigins origins() const { return {collected_origins, resumed_origins}; }

  capture::Facts collected, resumed;
  std::vector<capture::FactOrigin> collected_origins, resumed_origins;
  /// False if it was not wanted, or if user code released or modified what a later node saved. That node raises the error at its turn.
  bool can_record = false;
  /// The graph is best moved away from them: its small blocks would lie among theirs.
  bool among_large_tensors = false;
};

}  // namespace hindcast::engine
