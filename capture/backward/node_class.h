#pragma once
// How a node of a given C++ class is read and traced.

#include "capture/backward/collected.h"

namespace hindcast::capture {

struct NodeClass {
  NodeKind kind;
  const TypedCollector* typed;  // for Typed
  const char* opaque_reason;    // for Opaque
  bool writes_to_view = false;  // a CopySlices: the rest says what the node of the write is
};

/// A few ns; the first node of a class that LibTorch did not generate takes a lock and, for a C++ custom Function, asks
/// it once whether it was declared traceable.
NodeClass classify(torch::autograd::Node& node);

}  // namespace hindcast::capture
