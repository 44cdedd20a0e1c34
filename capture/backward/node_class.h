#pragma once
// How a node of a given C++ class is read and traced.

#include "capture/backward/collected.h"

namespace hindcast::capture {

struct NodeClass {
  NodeKind kind;
  const TypedCollector* typed;  // for Typed
  const char* opaque_reason;    // for Opaque
  bool writes_to_view = false;  // a CopySlices: the other fields describe the node of the write
};

/// Number of libraries unloaded so far. Read at most once per collection, at the first class whose code may be unloaded.
class Unloads {
 public:
  uint64_t count();
  /// The result of count(); 0 before its first call.
  uint64_t asked() const { return count_; }

 private:
  uint64_t count_ = 0;
};

/// Takes a few ns; the first node of a class that LibTorch did not generate takes a lock and, for a C++ custom Function, is asked whether
/// it was declared traceable; the next node is asked if this one could not be.
NodeClass classify(torch::autograd::Node& node, Unloads& unloads);

}  // namespace hindcast::capture
