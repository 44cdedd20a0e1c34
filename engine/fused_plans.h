#pragma once
// Plans with fused kernels, made beside the backwards: until one is ready, its graph is replayed through ATen.

#include "engine/variants.h"

namespace hindcast::engine {

struct FuseRequest {
  std::weak_ptr<const Variant> variant;  // one that was evicted or reset is nobody's any more: there is nothing to do
  Replay replay = Replay::Kernels;
  std::shared_ptr<const capture::ReplayCheck> check;  // every kernel must first compute on the capture's inputs what ATen does
};

/// Makes the variant's fused plan on the background thread, or at once. What fails is logged and counted, and the variant
/// stays with ATen.
void fuse(FuseRequest request, bool in_background);

/// Returns when nothing is waiting or being compiled.
void wait_for_fusion();

}  // namespace hindcast::engine
