#pragma once
// Options::nan_guard: looks at every gradient for infinities and NaN, and afterwards says where they began.
//
//   during the backward   references to what its graphs are given, and a look at each gradient on its way to a leaf
//   when it goes          if one was not finite: engine/nan_origin replays the graphs from these references
//
// Nothing is thrown and no gradient changes. The references keep saved tensors alive to the end of the backward.

#include "capture/backward/collected.h"
#include "capture/backward/observer.h"
#include "engine/diagnosis/nan_origin.h"

namespace hindcast::engine {

class NanGuard final : public capture::Observer {
 public:
  explicit NanGuard(const capture::Collected& collected);
  NanGuard(const NanGuard&) = delete;
  NanGuard& operator=(const NanGuard&) = delete;
  /// Counts the backward and writes the log, if there is something to say.
  ~NanGuard() override;

  void on_start(const capture::Resume& resume, std::shared_ptr<const capture::BackwardGraph> graph, const capture::Env* env) override;
  void on_input(capture::ValueId value, const at::Tensor& tensor) override;
  void on_gradient(uint32_t call, capture::ValueId value, const at::Tensor& gradient) override;

  static constexpr uint64_t kMostMessages = 10;

 private:
  std::string message() const;

  const capture::Collected& collected_;
  const bool speaks_;  // else nothing needs to be kept
  std::vector<Leg> legs_;
  uint64_t gradients_ = 0, not_finite_ = 0;
  uint32_t first_call_ = 0;  // of the first gradient that is not finite
  at::Tensor first_;
};

}  // namespace hindcast::engine
