#include "capture/function/watch_grad.h"

#include "capture/recorder/recorder.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace hindcast::capture {
namespace {

class WatchedMeta final : public torch::autograd::AutogradMeta {
 public:
  explicit WatchedMeta(at::Tensor input) : input_(std::move(input)) {}

  at::Tensor& mutable_grad() override { return is_asked() ? input_.mutable_grad() : AutogradMeta::mutable_grad(); }
  const at::Tensor& grad() const override { return is_asked() ? input_.grad() : AutogradMeta::grad(); }

 private:
  // Whether the function asks for the gradient; it then continues unrecorded, with the argument's gradient.
  bool is_asked() const {
    Recorder* const recorder = Recorder::current();
    if (recorder == nullptr || torch::autograd::get_current_graph_task_id() != -1) return false;
    recorder->refuse_now("asks for .grad of an argument");
    if (grad_.defined()) {
      const c10::AutoGradMode no_grad(false);
      at::Tensor& grad = input_.mutable_grad();
      grad = grad.defined() ? grad + grad_ : grad_;
      const_cast<WatchedMeta*>(this)->grad_.reset();
    }
    return true;
  }

  const at::Tensor input_;
};

}  // namespace

void watch_grad(const at::Tensor& stand_in, const at::Tensor& input) {
  if (!stand_in.is_inference()) stand_in.unsafeGetTensorImpl()->set_autograd_meta(std::make_unique<WatchedMeta>(input));
}

at::Tensor grad_of(const at::Tensor& stand_in) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(stand_in);
  return meta == nullptr ? at::Tensor() : meta->grad_;
}

}  // namespace hindcast::capture
