#include "engine/aot/time_backward.h"

#include <torch/csrc/autograd/function_hook.h>

#include <utility>

namespace hindcast::engine {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

class Start final : public torch::autograd::FunctionPreHook {
 public:
  explicit Start(std::shared_ptr<uint64_t> started_ns) : started_ns_(std::move(started_ns)) {}
  variable_list operator()(const variable_list& gradients) override {
    *started_ns_ = detail::processor_ns();
    return gradients;
  }

 private:
  const std::shared_ptr<uint64_t> started_ns_;
};

class Stop final : public torch::autograd::FunctionPostHook {
 public:
  Stop(std::shared_ptr<AotContext> context, const void* kind, std::shared_ptr<uint64_t> started_ns)
      : context_(std::move(context)), kind_(kind), started_ns_(std::move(started_ns)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    if (!at::GradMode::is_enabled()) context_->back_off.took_backward(kind_, detail::processor_ns() - *started_ns_, /*is_own=*/true);
    return outputs;
  }

 private:
  const std::shared_ptr<AotContext> context_;
  const void* const kind_;
  const std::shared_ptr<uint64_t> started_ns_;
};

}  // namespace

void time_backward(const std::shared_ptr<AotContext>& context, const std::vector<at::Tensor>& results) {
  capture::NodePtr node;
  for (const at::Tensor& result : results) {
    if (!result.defined() || !result.requires_grad()) continue;
    const auto& of_result = result.grad_fn();
    if (of_result == nullptr || (node != nullptr && node != of_result)) return;
    node = of_result;
  }
  const void* const kind = context->back_off.timed_kind();
  if (node == nullptr || kind == nullptr) return;
  const auto started_ns = std::make_shared<uint64_t>(0);
  node->add_pre_hook(std::make_unique<Start>(started_ns));
  node->add_post_hook(std::make_unique<Stop>(context, kind, started_ns));
}

}  // namespace hindcast::engine
