#include "hindcast/checkpoint.h"

#include "capture/recorder/recorder.h"
#include "engine/saved/frame.h"
#include "engine/takeover.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace hindcast {

CheckpointError::~CheckpointError() = default;

namespace detail {

using namespace engine;

struct CheckpointScope::State {
  explicit State(std::shared_ptr<CheckpointFrame> made) : frame(std::move(made)), scope(*frame) {}
  ~State() { frame->forward_is_over(); }

  const std::shared_ptr<CheckpointFrame> frame;
  const hooks::SavedTensorScope scope;
};

bool CheckpointScope::is_wanted() { return c10::GradMode::is_enabled() && capture::Recorder::current() == nullptr; }

CheckpointScope::CheckpointScope(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs, Rerun rerun) {
  install();  // the stock engine does not ask hindcast for hooks
  state_ = std::make_unique<State>(std::make_shared<CheckpointFrame>(options, inputs, std::move(rerun)));
}

CheckpointScope::~CheckpointScope() = default;

}  // namespace detail
}  // namespace hindcast
