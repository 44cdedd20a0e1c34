#pragma once
// Plans with fused kernels, made beside the backwards: until one is ready, its graph is replayed through ATen.

#include "engine/variants.h"

namespace hindcast::engine {

struct FuseRequest {
  std::weak_ptr<Variant> variant;   // one that was evicted or reset is nobody's any more: there is nothing to do
  Replay replay = Replay::Kernels;  // Eager: only moves it out of the way of the backwards' tensors (capture/graph/copy_graph.h)
  std::shared_ptr<const capture::ReplayCheck> check;  // every kernel must first compute on the capture's inputs what ATen does
};

/// Makes the variant's fused plan in the background, or at once. What fails is logged and counted, and the variant stays with
/// ATen; so does one whose check finds no room to wait in.
void fuse(FuseRequest request, bool in_background);

}  // namespace hindcast::engine
