#pragma once
// Pass 1: walk the autograd nodes of one backward in the stock engine's order and fill the key, the facts and the
// input tensors. This is all that a cache hit pays, so it allocates only by growing reused vectors.

#include "capture/backward/collected.h"
#include "base/check.h"

namespace hindcast::capture {

/// A gradient flows through a device that is neither the CPU nor of CollectOptions::devices.
struct DeviceNotTaken : Unsupported {
  using Unsupported::Unsupported;
};

/// Types of device, a bit each.
class DeviceTypes {
 public:
  void add(c10::DeviceType type) { bits_ |= uint64_t{1} << static_cast<uint8_t>(type); }
  bool contains(c10::DeviceType type) const { return (bits_ >> static_cast<uint8_t>(type) & 1) != 0; }

 private:
  uint64_t bits_ = 0;
};

struct CollectOptions {
  bool use_visitor = false;  // read every node through LibTorch's own visitor (slower; the typed collectors' oracle)
  bool all_opaque = false;   // no dispatch key is free for the recorder: every node is called as itself
  /// For a backward whose results are to have a history: saved tensors have theirs, Collected::integers is filled, and the key holds the
  /// scalars. Nodes that only LibTorch's visitor reads are opaque.
  bool with_history = false;
  DeviceTypes devices = {};  // that are taken beside the CPU, where they are LibTorch's accelerator
  /// The switches that ops on the accelerator ask for, as a word of the key.
  uint64_t (*accelerator_state)(c10::DeviceType accelerator) = nullptr;
};

/// Fills `out`. `state` are bytes of the call's global state, put in front of the key; behind them stands that of the accelerator, 0 where
/// all nodes are on the CPU.
/// Nothing has been touched when it throws: whatever it is, the stock engine can run the call.
void collect(const BackwardCall& call, const CollectOptions& options, const cache::KeyBytes& state, Collected& out);

/// Reads all fields again to say where each fact came from (facts and origins have equal length). On a miss only. Nodes
/// before `first_call` have run and may be released: their facts get an origin that says nothing.
/// Throws like collect() when a node's saved tensors are gone by now.
std::vector<FactOrigin> describe_facts(const Collected& collected, const CollectOptions& options, uint32_t first_call);

/// False if user code has released, modified or replaced what node `call` saved since it was collected, or registered a kind
/// of hook that it did not have. Throws nothing.
bool is_as_collected(const Collected& collected, uint32_t call);

/// Name of a node's field: "other", or "input" for its input metadata.
std::string field_name(const Collected& collected, const FactOrigin& origin);

}  // namespace hindcast::capture
