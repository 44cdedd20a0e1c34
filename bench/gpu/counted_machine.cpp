#include "bench/gpu/counted_machine.h"

#include <atomic>

namespace hindcast::bench::gpu {
namespace {

using codegen::cuda::Machine;

std::atomic<int64_t> launched = 0;

class CountedMachine final : public Machine {
 public:
  explicit CountedMachine(const Machine& machine) : machine_(machine) {}

  c10::DeviceType device() const override { return machine_.device(); }
  const codegen::cuda::Limits& limits() const override { return machine_.limits(); }
  std::string_view identity() const override { return machine_.identity(); }
  std::string compile(std::string_view text) const override { return machine_.compile(text); }
  std::shared_ptr<const codegen::cuda::Module> load(std::string_view object) const override { return machine_.load(object); }
  void launch(const codegen::cuda::Launch& launch) const override {
    launched.fetch_add(1, std::memory_order_relaxed);
    machine_.launch(launch);
  }
  bool wants_memory() const override { return machine_.wants_memory(); }
  std::string why_not_recorded(c10::Device device) const override { return machine_.why_not_recorded(device); }
  std::optional<bool> is_captured(c10::Device device) const override { return machine_.is_captured(device); }
  std::unique_ptr<codegen::Recording> record(c10::Device device, c10::function_ref<void()> give) const override {
    return machine_.record(device, give);
  }
  const codegen::CostModel* costs() const override { return machine_.costs(); }
  std::string why_not_on(c10::Device device) const override { return machine_.why_not_on(device); }

 private:
  const Machine& machine_;
};

}  // namespace

void install_counted(const Machine& machine) { codegen::cuda::install_machine(*new CountedMachine(machine)); }  // lives as the process does

int64_t launched_kernels() { return launched.load(std::memory_order_relaxed); }

}  // namespace hindcast::bench::gpu
