#include "capture/function/watch_grad.h"

#include "capture/recorder/recorder.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace hindcast::capture {
namespace {

class WatchedMeta final : public torch::autograd::AutogradMeta {
 public:
  explicit WatchedMeta(const at::Tensor& input) : input_(input.getIntrusivePtr()) {}

  at::Tensor& mutable_grad() override {
    const at::Tensor input = if_asked();
    return input.defined() ? input.mutable_grad() : AutogradMeta::mutable_grad();
  }
  const at::Tensor& grad() const override {
    const at::Tensor input = if_asked();
    return input.defined() ? input.grad() : AutogradMeta::grad();
  }

 private:
  // The argument, if the function asks for its gradient; the function then continues unrecorded, with that gradient.
  at::Tensor if_asked() const {
    Recorder* const recorder = Recorder::current();
    if (recorder == nullptr || torch::autograd::get_current_graph_task_id() != -1) return {};
    recorder->refuse_now("asks for .grad of an argument");
    at::Tensor input(input_.lock());
    if (input.defined() && grad_.defined()) {
      const c10::AutoGradMode no_grad(false);
      at::Tensor& grad = input.mutable_grad();
      grad = grad.defined() ? grad + grad_ : grad_;
      const_cast<WatchedMeta*>(this)->grad_.reset();
    }
    return input;
  }

  // Weak: the history of a written argument leads to the stand-ins. The caller holds it while the function runs.
  const c10::weak_intrusive_ptr<c10::TensorImpl> input_;
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
