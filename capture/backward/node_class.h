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

/// How many libraries were unloaded so far. Asked at most once per collection, at the first class whose code may be unloaded.
class Unloads {
 public:
  uint64_t count();
  /// What count() found; 0 before its first call.
  uint64_t asked() const { return count_; }

 private:
  uint64_t count_ = 0;
};

/// A few ns; the first node of a class that LibTorch did not generate takes a lock and, for a C++ custom Function, asks
/// it once whether it was declared traceable; again where that node could not be asked.
NodeClass classify(torch::autograd::Node& node, Unloads& unloads);

}  // namespace hindcast::capture
