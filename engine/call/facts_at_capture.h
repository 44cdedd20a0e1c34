#pragma once

#include "capture/backward/collect.h"
#include "capture/backward/trace.h"
#include "engine/cache/variants.h"

#include <vector>

namespace hindcast::engine {

/// The facts of a call when its capture begins. These are copies, since the capture releases nodes and tensors as it proceeds.
struct FactsAtCapture {
  /// `is_wanted`: a graph is to be captured, so the origins of the facts are needed.
  FactsAtCapture(const capture::Collected& from, const capture::CollectOptions& options, const capture::Resume& resume, bool is_wanted);

  CallFacts values() const { return {collected, resumed}; }
  CallOrigins origins() const { return {collected_origins, resumed_origins}; }

  capture::Facts collected, resumed;
  std::vector<capture::FactOrigin> collected_origins, resumed_origins;
  /// False if not wanted, or if user code released or modified what a later node saved. That node raises the error when it runs.
  bool can_record = false;
  /// The graph should be copied elsewhere, since its small heap blocks would fragment the large tensors' space.
  bool among_large_tensors = false;
};

}  // namespace hindcast::engine
