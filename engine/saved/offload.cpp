#include "hindcast/offload.h"

#include "base/log.h"
#include "base/never_freed.h"
#include "engine/saved/slot.h"
#include "engine/takeover.h"
#include "hooks/saved_tensor_hooks.h"
#include "hooks/start_streams.h"

#include <ATen/ops/empty_like.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace hindcast {
namespace {

using engine::Versioned;

bool lives_on(const at::Tensor& tensor) {
  const auto is_leaf = [](const at::TensorBase& one) { return one.requires_grad() && one.is_leaf(); };
  return is_leaf(tensor) || (tensor.is_view() && is_leaf(tensor._base()));
}

bool goes_to_host(const at::Tensor& tensor, const OffloadOptions& options) {
  if (tensor.is_cpu() || tensor.is_meta() || tensor.layout() != at::kStrided || tensor.is_nested()) return false;
  return tensor.nbytes() >= options.min_bytes && tensor.is_non_overlapping_and_dense() && !lives_on(tensor);
}

class OffloadHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit OffloadHooks(const OffloadOptions& options) : options_(options) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    if (!goes_to_host(tensor, options_)) {
      kept_ = Versioned(tensor);
      return;
    }
    device_ = tensor.device();
    is_pinned_ = options_.pin_memory && tensor.is_cuda();
    const at::Tensor source = tensor.resolve_conj().resolve_neg();
    copy_ = at::empty_like(source, source.options().device(at::kCPU).pinned_memory(is_pinned_), at::MemoryFormat::Preserve);
    copy_.copy_(source.detach(), /*non_blocking=*/is_pinned_);
    stream_ = hooks::current_stream_for(tensor);
  }

  at::Tensor call_unpack_hook() override {
    if (kept_.defined()) return kept_.checked();
    hooks::hand_over(copy_, stream_);
    return copy_.to(copy_.options().device(*device_).pinned_memory(false), /*non_blocking=*/is_pinned_);
  }

 private:
  const OffloadOptions options_;
  Versioned kept_;
  std::optional<at::Device> device_;  // the device of the original
  at::Tensor copy_;
  std::optional<c10::Stream> stream_;  // may still be writing to the copy
  bool is_pinned_ = false;
};

class Offload final : public hooks::SavedTensorHooks {
 public:
  explicit Offload(const OffloadOptions& options) : options_(options) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> next() override { return std::make_unique<OffloadHooks>(options_); }
  bool must_repeat() const override { return false; }

 private:
  const OffloadOptions options_;
};

}  // namespace

struct OffloadToHost::State {
  explicit State(const OffloadOptions& options) : offload(options), scope(offload) {}

  Offload offload;
  const hooks::SavedTensorScope scope;
  const std::thread::id thread = std::this_thread::get_id();
};

OffloadToHost::OffloadToHost(const OffloadOptions& options) {
  engine::install();  // the stock engine does not ask hindcast for hooks
  state_ = std::make_unique<State>(options);
}

OffloadToHost::~OffloadToHost() {
  if (state_->thread == std::this_thread::get_id()) return;
  HC_LOG(CompiledAutograd, Error,
         "an OffloadToHost was destroyed on another thread than the one that made it: that thread goes on offloading");
  // Never freed: its thread still points to it.
  base::never_free(std::move(state_));
}

}  // namespace hindcast
