#pragma once
// Replays a capture on copies of its tensors, to check that the graph computes what the capture did.

#include "capture/graph/same_bits.h"
#include "hindcast/graph.h"

#include <unordered_set>

namespace hindcast::capture {

/// Detects in-place writes to tensors, by LibTorch's version counters. A write that moves no counter, as through `.data`, is not seen.
class Versions {
 public:
  void add(const at::Tensor& tensor);
  bool have_moved() const;

 private:
  std::vector<std::pair<c10::VariableVersion, uint32_t>> then_;
};

/// Copies of a capture's inputs and results: enough to replay the graph and compare.
struct ReplayCheck {
  std::vector<std::pair<ValueId, at::Tensor>> inputs, results;
  /// A hook wrote in place to a tensor that it received, or something wrote to an incoming gradient (an accumulation, if the gradient is a
  /// leaf's `.grad`). The replay does not do this: its results may differ from the capture's although the graph is right.
  bool is_written = false;
  /// Replays the graph's ATen instrs on the copies. Says which result differs bitwise from the capture; nullopt if none does.
  std::optional<std::string> find_difference(const Graph& graph, Zeros zeros = Zeros::Signed) const;
  /// Results in which replays of the graph differ from each other, and what is computed from them. On an accelerator some of LibTorch's
  /// operators add in nondeterministic order.
  std::unordered_set<uint32_t> unsteady_values(const Graph& graph) const;
  /// As find_difference(), but the values in `unsteady` need only be close to those of the capture.
  std::optional<std::string> find_difference_beside(const std::unordered_set<uint32_t>& unsteady, const Graph& graph, Zeros zeros) const;
  /// Bytes of the copies.
  size_t footprint() const;
  /// Computes all values of the graph from the copies, through ATen.
  std::unordered_map<uint32_t, at::Tensor> replay(const Graph& graph) const;
  /// The accelerator that the copies are on; nullopt for the CPU.
  std::optional<c10::DeviceType> accelerator() const;
};

/// Surrounds a replay, which ignores streams: the copies were made on several streams, and their memory returns to those. Nothing else runs
/// on the accelerator when this is constructed, and nothing of the replay when it is destroyed.
class ReplayOnAccelerator {
 public:
  /// nullopt: on the CPU, where nothing waits.
  explicit ReplayOnAccelerator(std::optional<c10::DeviceType> accelerator);
  ~ReplayOnAccelerator();
  ReplayOnAccelerator(const ReplayOnAccelerator&) = delete;
  ReplayOnAccelerator& operator=(const ReplayOnAccelerator&) = delete;

 private:
  const std::optional<c10::DeviceType> accelerator_;
};

}  // namespace hindcast::capture
