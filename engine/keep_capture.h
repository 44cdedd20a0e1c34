#pragma once
// What happens to a graph after the backward that captured it: it is verified, numbered, logged, cached and queued for the compiler.

#include "cache/key.h"
#include "capture/graph/replay_check.h"
#include "engine/cache/variants.h"
#include "engine/call/facts_at_capture.h"
#include "hindcast/graph.h"

#include <memory>

namespace hindcast::engine {

struct NewCapture {
  std::shared_ptr<capture::Graph> graph;
  cache::KeyView key;
  std::shared_ptr<Entry> entry;  // the key's cache entry, or a new one
  Start start;
  const FactsAtCapture& facts;
  capture::DynamicFacts dynamic;
  capture::ReplayCheck check;  // filled if Options::verify is on
  bool bitwise = false;        // replays must round exactly as the capture did
  uint64_t now = 0;            // the call's number
};

/// Returns false if the cache has no room for a graph of this size. Errors are logged and counted, not thrown: the backward is already
/// done, and an exception here would look like its own.
bool keep(NewCapture capture, const Options& options);

}  // namespace hindcast::engine
