#include "codegen/cuda/backend.h"

#include "base/fork.h"
#include "codegen/cuda/cost_model.h"
#include "codegen/cuda/foreach.h"
#include "codegen/cuda/graph_library.h"
#include "codegen/cuda/kernel_call.h"
#include "codegen/cuda/kernels.h"
#include "codegen/cuda/seeds.h"
#include "codegen/cuda/source.h"
#include "codegen/fuse/random_ops.h"
#include "codegen/kernel/device_library.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace hindcast::codegen::cuda {
namespace {

c10::DeviceType device_of_machine() { return installed_machine() == nullptr ? c10::kCUDA : installed_machine()->device(); }

// Uses LibTorch's synchronisation, since the work may be other than hindcast's kernels.
void wait_for_current_stream() {
  const c10::DeviceType type = device_of_machine();
  if (type == c10::kCPU) return;  // a test's machine runs launches synchronously
  const c10::impl::VirtualGuardImpl guard(type);
  guard.synchronizeStream(guard.getStream(guard.getDevice()));
}

double measured_copy_bandwidth() {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kBytes = int64_t{128} << 20;  // together with its copy, more than the caches hold
  const at::TensorOptions options = at::TensorOptions().device(device_of_machine()).dtype(at::kByte);
  double best = 0;
  at::Tensor from, to;
  try {
    from = at::empty({kBytes}, options);
    to = at::empty({kBytes}, options);
  } catch (const c10::OutOfMemoryError&) {  // only for reports, which then omit the share of the bandwidth
    return std::numeric_limits<double>::infinity();
  }
  for (int i = 0; i < 5; ++i) {
    wait_for_current_stream();
    const auto start = Clock::now();
    to.copy_(from);
    wait_for_current_stream();
    best = std::max(best, 2.0 * static_cast<double>(kBytes) / std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return best;
}

class CudaBackend final : public Backend {
 public:
  c10::DeviceType device() const override { return device_of_machine(); }
  const CostModel& cost_model() const override { return cuda::cost_model(); }

  std::shared_ptr<const Kernel> kernel(const Body& body, std::string& why_not, RunLater later) const override {
    return kernel_of(body, later, why_not);
  }
  std::unique_ptr<const OpCall> call(const Group& group, std::shared_ptr<const Kernel> kernel) const override {
    return make_kernel_call(group, std::static_pointer_cast<const CudaKernel>(std::move(kernel)));
  }
  void run_foreach(const Body& body, const Kernel& kernel, const ForeachSets& sets) const override {
    cuda::run_foreach(body, static_cast<const CudaKernel&>(kernel), sets);
  }

  std::string source(const Body& body) const override { return source_of(body); }
  std::vector<ProgramFile> reproducer(const capture::Graph& /*graph*/, const Group& group,
                                      const std::unordered_map<uint32_t, at::Tensor>& /*given*/) const override {
    std::vector<ProgramFile> files = {{"kernel.cu", source_of(group.body)}};
    for (const DeviceHeader& header : device_library()) files.push_back({std::string(header.name), std::string(header.text)});
    files.push_back({"no_main.txt", "There is no program: of a kernel for CUDA only the text is written. nvcc -I. -cubin compiles it.\n"});
    return files;
  }

  bool has_non_finite(const at::Tensor& dense) const override { return !at::isfinite(dense).all().item<bool>(); }

  std::string why_not_on(c10::Device device) const override {
    const Machine* const with = machine();
    return with == nullptr ? std::string() : with->why_not_on(device);
  }
  std::string why_not_recorded(c10::Device device) const override {
    std::string why_not;
    const Machine* const with = machine(&why_not);
    return with == nullptr ? why_not : with->why_not_recorded(device);
  }
  std::optional<bool> is_captured(c10::Device device) const override {
    const Machine* const with = machine();
    return with == nullptr ? std::nullopt : with->is_captured(device);
  }
  bool compiles_for_calls() const override { return cuda::compiles_for_calls(); }
  std::unique_ptr<Recording> record(c10::Device device, c10::function_ref<void()> give) const override {
    return machine()->record(device, give);
  }
  void synchronize() const override { wait_for_current_stream(); }
  double copy_bandwidth() const override {
    static constinit base::MadeOnce<const double> bandwidth;
    return bandwidth.by(measured_copy_bandwidth);
  }

  // The backend has no allocator of its own: LibTorch's allocator of the device keeps the counts.
  MemoryCounts memory_counts() const override { return {}; }
  void reset_memory_counts() const override {}
  size_t trim_memory() const override {
    if (const CudaGraphsTable* const graphs = opened_graph_library()) graphs->give_back();
    return 0;  // the bytes of CUDA graphs are counted where the graphs are destroyed
  }
};

constinit const CudaBackend kBackend{};

[[maybe_unused]] const bool seeds_are_drawn = (draw_seeds_by(draw_seed), true);

}  // namespace

const Backend& cuda_backend() { return kBackend; }

bool stands_in_for(c10::DeviceType device) { return installed_machine() != nullptr && installed_machine()->device() == device; }

}  // namespace hindcast::codegen::cuda
