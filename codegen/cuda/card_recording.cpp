#include "codegen/cuda/card_recording.h"

#include "base/check.h"
#include "codegen/cuda/card.h"

namespace hindcast::codegen::cuda {
namespace {

thread_local CardRecording* made_now = nullptr;

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
  void* function = nullptr;
  unsigned grid[3] = {}, block[3] = {};
  unsigned shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;
  void* context = nullptr;
};

}  // namespace

CardRecording* CardRecording::current() { return made_now; }

CardRecording::CardRecording(const Card& card, const CudaGraphsTable& graphs, c10::DeviceIndex device, c10::function_ref<void()> give)
    : card_(card), device_(device) {
  graph_ = graphs.capture(device, [&] {
    struct Now {
      explicit Now(CardRecording* recording) { made_now = recording; }
      ~Now() { made_now = nullptr; }
    } const now(this);
    give();
  });
}

// The launch is the stream's last node, which the next work in the stream would depend on.
void CardRecording::log(const Launch& launch, void* stream) {
  int status = 0;
  unsigned long long id = 0;
  void* graph = nullptr;
  void* const* last = nullptr;
  size_t count = 0;
  HC_CALL(card_.driver(), cuStreamGetCaptureInfo_v2, stream, &status, &id, &graph, &last, &count);
  HC_CHECK(count == 1, "{} nodes are the last ones of a stream behind a launch", count);
  launches_.add(launch, last[0]);
}

void CardRecording::update(const LoggedLaunches::One& launch) {
  const Driver& driver = card_.driver();
  KernelNode node;
  HC_CALL(driver, cuGraphKernelNodeGetParams_v2, launch.node, &node);
  void* arguments[] = {const_cast<uint64_t*>(launch.argument.data())};  // the driver copies it
  node.arguments = arguments;
  node.extra = nullptr;
  HC_CALL(driver, cuGraphExecKernelNodeSetParams_v2, graph_->executable(), launch.node, &node);
}

bool CardRecording::move(c10::ArrayRef<MovedMemory> moved) {
  bool is_moved = false;
  card_.with_context_of(device_, [&] { is_moved = launches_.move(moved, [&](const LoggedLaunches::One& launch) { update(launch); }); });
  return is_moved;
}

bool CardRecording::replace_sets(c10::function_ref<void()> give) {
  bool fits = false;
  card_.with_context_of(device_, [&] { fits = launches_.replace_sets(give, [&](const LoggedLaunches::One& launch) { update(launch); }); });
  return fits;
}

}  // namespace hindcast::codegen::cuda
