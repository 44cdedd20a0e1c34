#pragma once
// What is done with a graph behind the backward that captured it: checked, numbered, logged, put into the cache, and given to the
// compiler.

#include "cache/key.h"
#include "capture/graph/graph.h"
#include "capture/graph/replay_check.h"
#include "engine/facts_at_capture.h"
#include "engine/variants.h"

#include <memory>

namespace hindcast::engine {

struct NewCapture {
  std::shared_ptr<capture::Graph> graph;
  cache::KeyView key;
  std::shared_ptr<Entry> entry;  // of the key, or a new one
  Start start;
  const FactsAtCapture& facts;
  capture::DynamicFacts dynamic;
  capture::ReplayCheck check;  // filled where Options::verify is on
  bool to_the_bit = false;     // nothing may round otherwise than it did at capture
  uint64_t now = 0;            // number of the call
};

/// False: the cache has no room for a graph of this size. The backward is done, so that no error may look like one of backward(): what is wrong with the
/// capture is logged and counted.
bool keep(NewCapture capture, const Options& options);

}  // namespace hindcast::engine
