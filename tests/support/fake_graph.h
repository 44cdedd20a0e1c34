#pragma once
// A CUDA graph of the fake device: during a capture, work is recorded with its addresses, and not run. Memory allocated meanwhile is the
// graph's: when freed, it is reused within the capture, and it holds no values until a launch has written them. A launch that accesses
// memory which is no longer allocated is an error; so is memory of the graph that outlives it.

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/stream_model.h"

namespace hindcast::tests {

class FakeGraph {
 public:
  struct Work {
    std::string what;
    std::vector<const void*> reads, writes;  // an address of each memory
    std::function<void()> run;
  };

  /// Throws what `give` throws, and if something cannot be captured on a card.
  FakeGraph(at::Device device, c10::function_ref<void()> give);
  ~FakeGraph();
  FakeGraph(const FakeGraph&) = delete;
  FakeGraph& operator=(const FakeGraph&) = delete;

  /// On the current stream of the device.
  void launch() const;
  size_t bytes() const;
  std::vector<Work>& works() { return works_; }

  /// The graph that this thread captures; null: none.
  static FakeGraph* captured_now();
  void add(Work work) { works_.push_back(std::move(work)); }
  /// For a tensor created during the capture.
  c10::DataPtr allocate(size_t bytes);
  /// Like cudaErrorStreamCaptureUnsupported.
  [[noreturn]] static void refuse(const std::string& what);

  struct Pool;
  /// A graph's block of memory; null: not a graph's.
  static StreamModel::Block* block_of(const c10::DataPtr& data);

 private:
  const at::Device device_;
  std::shared_ptr<Pool> pool_;
  std::vector<Work> works_;
};

/// Errors of launches, and graphs that left memory behind, since the last call.
std::vector<std::string> take_graph_errors();

/// The block that contains an address; null: none.
StreamModel::Block* block_at(const void* address);

/// One piece of work on the device's current stream, which accesses the blocks at these addresses.
void run_on_model(at::Device device, const std::string& what, const std::vector<const void*>& reads,
                  const std::vector<const void*>& writes);

}  // namespace hindcast::tests
