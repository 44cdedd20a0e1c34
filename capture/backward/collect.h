#pragma once
// Pass 1: walks the autograd nodes of one backward in the stock engine's order and fills the key, the facts and the input tensors. A cache
// hit pays only for this, so it allocates only by growing reused vectors.

#include "capture/backward/collected.h"
#include "base/check.h"

namespace hindcast::capture {

/// A gradient is on a device that is neither the CPU nor among CollectOptions::devices.
struct DeviceNotTaken : Unsupported {
  using Unsupported::Unsupported;
};

/// A set of device types, one bit each.
class DeviceTypes {
 public:
  void add(c10::DeviceType type) { bits_ |= uint64_t{1} << static_cast<uint8_t>(type); }
  bool contains(c10::DeviceType type) const { return (bits_ >> static_cast<uint8_t>(type) & 1) != 0; }

 private:
  uint64_t bits_ = 0;
};

struct CollectOptions {
  bool use_visitor = false;  // read every node through LibTorch's own visitor (slower; the typed collectors' oracle)
  bool all_opaque = false;   // no dispatch key is free for the recorder: every node is opaque
  /// For a backward whose results need a history: saved tensors have theirs, Collected::integers is filled, and the key holds the scalars.
  /// Nodes that only LibTorch's visitor reads are opaque.
  bool with_history = false;
  DeviceTypes devices = {};  // accepted besides the CPU, if they are LibTorch's accelerator
  /// Returns the settings that ops on the accelerator read, as a word of the key.
  uint64_t (*accelerator_state)(c10::DeviceType accelerator) = nullptr;
};

/// Fills `out`. `state`: bytes of the call's global state, which begin the key, followed by the accelerator's state, 0 if all nodes are on
/// the CPU. Nothing has been changed when it throws: the stock engine can run the call whatever the exception.
void collect(const BackwardCall& call, const CollectOptions& options, const cache::KeyBytes& state, Collected& out);

/// Reads all fields again to find each fact's origin (facts and origins have equal length). Only on a miss. Nodes before `first_call` have
/// run and may be released: their facts get a placeholder origin. Throws like collect() if a node's saved tensors are gone by now.
std::vector<FactOrigin> describe_facts(const Collected& collected, const CollectOptions& options, uint32_t first_call);

/// False if user code has released, modified or replaced what node `call` saved since it was collected, or registered a kind of hook that
/// it did not have. Does not throw.
bool is_as_collected(const Collected& collected, uint32_t call);

/// Name of a node's field: "other", or "input" for its input metadata.
std::string field_name(const Collected& collected, const FactOrigin& origin);

}  // namespace hindcast::capture
