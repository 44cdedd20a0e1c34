#pragma once
// Options::nan_guard: checks every gradient for infinities and NaN, and afterwards logs where they began.
//
//   during the backward   keeps references to the graphs' inputs, and checks each gradient before it reaches a leaf tensor
//   in the destructor     if a gradient was not finite, replays the graphs from these references (engine/diagnosis/nan_origin)
//
// It throws nothing and changes no gradient. The references keep saved tensors alive until the end of the backward.

#include "capture/backward/collected.h"
#include "capture/backward/observer.h"
#include "engine/diagnosis/nan_origin.h"

namespace hindcast::engine {

class NanGuard final : public capture::Observer {
 public:
  explicit NanGuard(const capture::Collected& collected);
  NanGuard(const NanGuard&) = delete;
  NanGuard& operator=(const NanGuard&) = delete;
  /// Counts and logs the backward if a gradient was not finite.
  ~NanGuard() override;

  void on_start(const capture::Resume& resume, std::shared_ptr<const capture::BackwardGraph> graph, const capture::Env* env) override;
  void on_input(capture::ValueId value, const at::Tensor& tensor) override;
  void on_gradient(uint32_t call, capture::ValueId value, const at::Tensor& gradient) override;

  static constexpr uint64_t kMostMessages = 10;

 private:
  std::string message() const;

  const capture::Collected& collected_;
  const bool speaks_;  // false: nothing will be logged, so no references are kept
  std::vector<Leg> legs_;
  uint64_t gradients_ = 0, not_finite_ = 0;
  uint32_t first_call_ = 0;  // of the first gradient that is not finite
  at::Tensor first_;
};

}  // namespace hindcast::engine
