#pragma once
// A capture that can be done again on copies, to see whether the graph says what happened.

#include "capture/graph/graph.h"
#include "capture/graph/same_bits.h"

#include <unordered_set>

namespace hindcast::capture {

/// Whether tensors are written to in place, by LibTorch's counters. A write that moves no counter, as by `.data`, is not seen.
class Versions {
 public:
  void add(const at::Tensor& tensor);
  bool have_moved() const;

 private:
  std::vector<std::pair<c10::VariableVersion, uint32_t>> then_;
};

/// What a capture was given and what it made, as copies: enough to replay the graph and compare.
struct ReplayCheck {
  std::vector<std::pair<ValueId, at::Tensor>> inputs, results;
  /// A hook wrote in place to a tensor that it was given, or something did to a gradient that came in (an accumulation, where that is a leaf's
  /// `.grad`). The replay does no such thing: its results may be other ones than the capture's, though the graph is right.
  bool is_written = false;
  /// Replays the graph's ATen instrs on the copies. Says what differs from the capture by a bit; nullopt: nothing does.
  std::optional<std::string> find_difference(const Graph& graph, Zeros zeros = Zeros::Signed) const;
  /// Results in which replays of the graph differ from each other, and what is computed from them. On an accelerator some of LibTorch's
  /// operators add in any order.
  std::unordered_set<uint32_t> unsteady_values(const Graph& graph) const;
  /// As find_difference(), but for values that need only be near those of the capture.
  std::optional<std::string> find_difference_beside(const std::unordered_set<uint32_t>& unsteady, const Graph& graph, Zeros zeros) const;
  /// Bytes of the copies.
  size_t footprint() const;
  /// All values of the graph, by ATen, from the copies.
  std::unordered_map<uint32_t, at::Tensor> replay(const Graph& graph) const;
  /// Where they are, if that is not the CPU.
  std::optional<c10::DeviceType> accelerator() const;
};

/// Around a replay, which knows no streams: the copies were made on several, and their memory goes back to those. Nothing else is under way
/// on the accelerator when this is made, and nothing of the replay when it goes.
class ReplayOnAccelerator {
 public:
  /// None: on the CPU, where nothing waits.
  explicit ReplayOnAccelerator(std::optional<c10::DeviceType> accelerator);
  ~ReplayOnAccelerator();
  ReplayOnAccelerator(const ReplayOnAccelerator&) = delete;
  ReplayOnAccelerator& operator=(const ReplayOnAccelerator&) = delete;

 private:
  const std::optional<c10::DeviceType> accelerator_;
};

}  // namespace hindcast::capture
