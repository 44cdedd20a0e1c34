#pragma once
// The machine (machine.h) of real NVIDIA GPUs, called "cards" here.
//
// Kernels are compiled for the architecture of the first card, and run on all cards with that architecture. A kernel runs on LibTorch's
// current stream of its device, whichever device is the thread's current one.

#include "codegen/cuda/driver.h"
#include "codegen/cuda/machine.h"
#include "codegen/cuda/nvrtc.h"

#include <atomic>
#include <optional>
#include <vector>

namespace hindcast::codegen::cuda {

class Card final : public Machine {
 public:
  /// nullptr, and the reason in `why_not`, if there is no card that `nvrtc` can compile for. `driver` and `nvrtc` must outlive the result,
  /// which must outlive its modules.
  static std::unique_ptr<const Card> open(const Driver& driver, const Nvrtc& nvrtc, std::string* why_not);

  c10::DeviceType device() const override { return c10::kCUDA; }
  const Limits& limits() const override { return limits_; }
  std::string_view identity() const override { return identity_; }
  std::string compile(std::string_view text) const override;
  std::shared_ptr<const Module> load(std::string_view object) const override;
  void launch(const Launch& launch) const override;
  bool write(c10::Device device, void* to, uint64_t value) const override;
  std::string why_not_on(c10::Device device) const override;
  bool wants_memory() const override;
  std::string why_not_recorded(c10::Device device) const override;
  std::optional<bool> is_captured(c10::Device device) const override;
  std::unique_ptr<Recording> record(c10::Device device, c10::function_ref<void()> give) const override;

  const Driver& driver() const { return driver_; }
  /// Runs `call` with the device's context current. The thread may have another current device, or none.
  void with_context_of(c10::DeviceIndex index, c10::function_ref<void()> call) const;

 private:
  friend class LoadedLibrary;
  struct One {
    int device = 0;      // the driver's handle
    int capability = 0;  // 90 is 9.0
    mutable std::atomic<void*> context = nullptr;
  };

  Card(const Driver& driver, const Nvrtc& nvrtc, size_t count) : driver_(driver), nvrtc_(nvrtc), cards_(count) {}
  bool runs_on(int index) const {
    return static_cast<size_t>(index) < cards_.size() && cards_[static_cast<size_t>(index)].capability == cards_.front().capability;
  }
  static void* context_of(const Driver& driver, const One& card);
  /// Makes the card's context current on this thread, if it is not already, for as long as `entered` lives.
  class CurrentContext;
  void enter(c10::DeviceIndex index, std::optional<CurrentContext>& entered) const;
  bool is_captured(void* stream) const;
  /// Loads the kernel in each active context now; otherwise the driver would load it lazily, at the first launch.
  void prepare(void* kernel, std::string_view name) const;
  int registers_of(void* kernel) const;
  void allow_shared_memory(void* kernel, int device) const;

  const Driver& driver_;
  const Nvrtc& nvrtc_;
  std::vector<One> cards_;
  Limits limits_;
  std::vector<std::string> options_;
  std::string identity_;
};

}  // namespace hindcast::codegen::cuda
