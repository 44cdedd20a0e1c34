#pragma once
// A card that runs nothing.

#include "codegen/cuda/machine.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace hindcast::bench::gpu {

/// One of the entry points of a text.
struct EntryPoint {
  std::shared_ptr<const std::string> text;
  std::string name;
};

struct Launches {
  std::vector<EntryPoint> entries;  // one per launch, in order
  /// Bytes that a launch reads and writes, each byte once per launch: repeated reads mostly hit a cache. An existing gradient that
  /// is added to counts as read, not as written.
  double bytes = 0;
};

/// With the limits of an H100 and an H200. It accepts CPU tensors; kernels' results stay uninitialized.
class NoCard final : public codegen::cuda::Machine {
 public:
  /// Launches are kept until they are taken.
  NoCard() = default;
  /// Forwards launches to `next`, as launches on its device, to measure their cost on the host. Null: nowhere.
  explicit NoCard(const codegen::cuda::Machine* next) : is_counting_(false), next_(next) {}

  c10::DeviceType device() const override { return c10::kCPU; }
  const codegen::cuda::Limits& limits() const override { return limits_; }
  std::string_view identity() const override { return "no card"; }
  std::string compile(std::string_view text) const override { return std::string(text); }
  std::shared_ptr<const codegen::cuda::Module> load(std::string_view object) const override;
  void launch(const codegen::cuda::Launch& launch) const override;
  bool wants_memory() const override { return is_counting_; }

  /// Launches since the last call.
  Launches take() const;

 private:
  const codegen::cuda::Limits limits_;
  const bool is_counting_ = true;
  const codegen::cuda::Machine* const next_ = nullptr;
  mutable std::mutex mutex_;
  mutable Launches launches_;
};

}  // namespace hindcast::bench::gpu
