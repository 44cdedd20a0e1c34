#include "capture/function/watch_grad.h"

#include "capture/recorder/recorder.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

namespace hindcast::capture {
namespace {

struct WatchedMeta final : torch::autograd::AutogradMeta {
  at::Tensor& mutable_grad() override {
    see();
    return AutogradMeta::mutable_grad();
  }
  const at::Tensor& grad() const override {
    see();
    return AutogradMeta::grad();
  }

 private:
  static void see() {
    Recorder* const recorder = Recorder::current();
    if (recorder != nullptr && torch::autograd::get_current_graph_task_id() == -1) recorder->refuse_now("asks for .grad of an argument");
  }
};

}  // namespace

void watch_grad(const at::Tensor& stand_in) {
  if (!stand_in.is_inference()) stand_in.unsafeGetTensorImpl()->set_autograd_meta(std::make_unique<WatchedMeta>());
}

}  // namespace hindcast::capture
