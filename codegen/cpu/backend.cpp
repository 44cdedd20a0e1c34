#include "codegen/cpu/backend.h"

#include "codegen/cpu/cost_model.h"
#include "codegen/cpu/foreach.h"
#include "codegen/cpu/kernel_call.h"
#include "codegen/cpu/kernels.h"
#include "codegen/cpu/memory/recycler.h"
#include "codegen/cpu/memory/small_blocks.h"
#include "codegen/cpu/non_finite.h"
#include "codegen/cpu/reproducer.h"
#include "codegen/cpu/source.h"
#include "codegen/cpu/vector_norm.h"
#include "base/fork.h"

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace hindcast::codegen::cpu {
namespace {

// The copy bandwidth of one thread.
double measured_copy_bandwidth() {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kBytes = size_t{16} << 20;
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    best = std::max(best, 2 * static_cast<double>(kBytes) / std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return to[kBytes / 2] == 1 ? best : 0;
}

class CpuBackend final : public Backend {
 public:
  c10::DeviceType device() const override { return c10::kCPU; }
  const CostModel& cost_model() const override { return cpu::cost_model(); }

  std::shared_ptr<const Kernel> kernel(const Body& body, std::string& why_not, RunLater /*later*/) const override {
    return kernel_of(body, why_not);
  }
  std::unique_ptr<const OpCall> call(const Group& group, std::shared_ptr<const Kernel> kernel) const override {
    return make_kernel_call(group, std::static_pointer_cast<const CpuKernel>(std::move(kernel)));
  }
  void run_foreach(const Body& body, const Kernel& kernel, const ForeachSets& sets) const override {
    cpu::run_foreach(body, static_cast<const CpuKernel&>(kernel), sets);
  }

  std::string source(const Body& body) const override { return source_of(body); }
  std::vector<ProgramFile> reproducer(const capture::Graph& graph, const Group& group,
                                      const std::unordered_map<uint32_t, at::Tensor>& given) const override {
    return cpu::reproducer(graph, group, given);
  }

  at::Tensor vector_norm(at::TensorList tensors, double order) const override {
    const auto norm = order == 2 ? euclidean_norm(tensors) : std::nullopt;
    return norm ? at::detail::scalar_tensor_static(*norm, at::kDouble, at::kCPU) : Backend::vector_norm(tensors, order);
  }
  bool has_non_finite(const at::Tensor& dense) const override { return cpu::has_non_finite(dense); }

  void synchronize() const override {}  // calls are synchronous
  double copy_bandwidth() const override {
    static constinit base::MadeOnce<const double> bandwidth;
    return bandwidth.by(measured_copy_bandwidth);
  }

  MemoryCounts memory_counts() const override {
    const RecyclerCounts counts = Recycler::of_process().counts();
    return {counts.reused, counts.fresh, counts.returned, counts.held_bytes, counts.held_buffers};
  }
  void reset_memory_counts() const override { Recycler::of_process().reset_counts(); }
  size_t trim_memory() const override { return Recycler::of_process().trim() + small_blocks::trim(); }
};

constinit const CpuBackend kBackend{};  // needs no initialisation guard, which might be locked at a fork

}  // namespace

const Backend& cpu_backend() { return kBackend; }

}  // namespace hindcast::codegen::cpu
