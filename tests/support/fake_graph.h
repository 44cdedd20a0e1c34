#pragma once
// A CUDA graph of the fake device: what is given to the device while it is captured is written down, with the addresses that it has, and
// not done. Memory that is asked for meanwhile is the graph's: freed, it is used again within the capture, and holds no values until a
// launch has made them. A launch that meets memory which is nobody's any more is an error; so is memory of the graph that outlives it.

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

  /// Throws what `give` throws, and where something is given that a card cannot capture.
  FakeGraph(at::Device device, c10::function_ref<void()> give);
  ~FakeGraph();
  FakeGraph(const FakeGraph&) = delete;
  FakeGraph& operator=(const FakeGraph&) = delete;

  /// On the current stream of the device.
  void launch() const;
  size_t bytes() const;
  std::vector<Work>& works() { return works_; }

  /// That this thread captures; null: none.
  static FakeGraph* captured_now();
  void add(Work work) { works_.push_back(std::move(work)); }
  /// For a tensor that is made while it is captured.
  c10::DataPtr allocate(size_t bytes);
  /// As cudaErrorStreamCaptureUnsupported.
  [[noreturn]] static void refuse(const std::string& what);

  struct Pool;
  /// The block of memory of a graph; null: it is none.
  static StreamModel::Block* block_of(const c10::DataPtr& data);

 private:
  const at::Device device_;
  std::shared_ptr<Pool> pool_;
  std::vector<Work> works_;
};

/// What launches did wrong, and graphs that left memory behind, since this was asked last.
std::vector<std::string> take_graph_errors();

/// The block that an address is in; null: nobody's.
StreamModel::Block* block_at(const void* address);

/// One work on the current stream of the device, which touches the blocks that these addresses are in.
void run_on_model(at::Device device, const std::string& what, const std::vector<const void*>& reads,
                  const std::vector<const void*>& writes);

}  // namespace hindcast::tests
