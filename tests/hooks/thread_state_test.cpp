// A hook that changes the thread's state and does not restore it: autocast, grad mode, the modes of saved tensors. In the stock engine the
// rest of the hook's node runs in that state, and no other node does.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <string>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

struct Leave {
  const char* name;
  void (*change)();
};

void PrintTo(const Leave& leave, std::ostream* out) { *out << leave.name; }

std::string state_of_thread() {
  return std::string("autocast ") + (at::autocast::is_autocast_enabled(at::kCPU) ? "on" : "off") + ", dtype " +
         c10::toString(at::autocast::get_autocast_dtype(at::kCPU)) + ", grad mode " + (at::GradMode::is_enabled() ? "on" : "off") +
         ", saved tensor hooks " + (at::SavedTensorDefaultHooks::is_enabled() ? "on" : "off");
}

constexpr int kSteps = 7;
bool always(int) { return true; }
bool now_and_then(int step) { return step % 3 == 2; }

class AHookLeaves : public testing::TestWithParam<Leave> {
 protected:
  AHookLeaves() {
    // Autocast computes products on the CPU in bfloat16: the gradients differ in their third digit.
    a_ = torch::randn({5, 7}), b_ = torch::randn({7, 4});
  }

  /// Three products with a hook in between, at the node of the inner one or at the leaf whose gradient comes first.
  void run(void (*add_hook)(Log&, const at::Tensor& inner, const at::Tensor& first_leaf, void (*change)()),
           Takeover takeover = Takeover::Some) {
    for (const auto leaves : {always, now_and_then}) run(add_hook, leaves, takeover);
  }

 private:
  void run(void (*add_hook)(Log&, const at::Tensor&, const at::Tensor&, void (*)()), bool (*leaves)(int step), Takeover takeover) {
    expect_same_steps(
        kSteps,
        [&](Log& log, int step) {
          const auto a = a_.clone().requires_grad_(), b = b_.clone().requires_grad_(), c = a_.t().contiguous().requires_grad_();
          const auto inner = (a * 2).mm(b), outer = inner.tanh().t().mm(a_).mm(c);
          void (*const nothing)() = [] {};
          add_hook(log, inner, c, leaves(step) ? GetParam().change : nothing);
          for (const auto& tensor : {a, b, c}) {
            tensor.register_hook([&log](const at::Tensor& grad) {
              log.note("at a leaf: " + state_of_thread());
              return grad;
            });
          }
          outer.sum().backward();
          log.show("grads", {a.grad(), b.grad(), c.grad()});
          log.note(std::string("need gradients: ") + (a.grad().requires_grad() ? "yes" : "no"));
          log.note("behind it: " + state_of_thread());
        },
        takeover);
  }

  at::Tensor a_, b_;
};

TEST_P(AHookLeaves, AtAPreHook) {
  run([](Log& log, const at::Tensor& inner, const at::Tensor&, void (*change)()) {
    inner.grad_fn()->add_pre_hook(pre_hook([=](const variable_list& grads) {
      change();
      return grads;
    }));
    inner.grad_fn()->add_post_hook(post_hook([&log](const variable_list& outputs, const variable_list&) {
      log.note("behind the node: " + state_of_thread());
      return outputs;
    }));
  });
}

TEST_P(AHookLeaves, AtATensorHook) {
  run([](Log& log, const at::Tensor& inner, const at::Tensor&, void (*change)()) {
    inner.register_hook([=](const at::Tensor& grad) {
      change();
      return grad + 0;
    });
    inner.grad_fn()->add_pre_hook(pre_hook([&log](const variable_list& grads) {
      log.note("before the node: " + state_of_thread());
      return grads;
    }));
  });
}

TEST_P(AHookLeaves, AtAPostHook) {
  run(
      [](Log&, const at::Tensor& inner, const at::Tensor&, void (*change)()) {
        inner.grad_fn()->add_post_hook(post_hook([=](const variable_list& outputs, const variable_list&) {
          change();
          return outputs;
        }));
      },
      Takeover::Hits);
}

TEST_P(AHookLeaves, WhereALeafHasItsGradient) {
  run(
      [](Log&, const at::Tensor&, const at::Tensor& first_leaf, void (*change)()) {
        torch::autograd::impl::set_post_acc_grad_hooks(first_leaf,
                                                       std::make_unique<LambdaGradReadyHook>([=](const at::Tensor&) { change(); }));
      },
      Takeover::Hits);
}

struct LeavesItsState : torch::autograd::Function<LeavesItsState> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    change();
    return {grads[0] * 2};
  }
  inline static void (*change)() = nullptr;
};

TEST_P(AHookLeaves, AtANodeOfItsOwn) {
  for (const auto leaves : {always, now_and_then}) {
    expect_same_steps(
        kSteps,
        [&](Log& log, int step) {
          const auto a = leaf({5, 7}), b = leaf({7, 4});
          void (*const nothing)() = [] {};
          LeavesItsState::change = leaves(step) ? GetParam().change : nothing;
          const auto inner = (a * 2).mm(b), own = LeavesItsState::apply(inner);
          own.grad_fn()->add_post_hook(post_hook([&log](const variable_list& outputs, const variable_list&) {
            log.note("behind the node: " + state_of_thread());
            return outputs;
          }));
          LeavesItsState::apply(own).tanh().sum().backward();
          log.show("grads", {a.grad(), b.grad()});
          log.note("behind it: " + state_of_thread());
        },
        Takeover::Some);
  }
}

INSTANTIATE_TEST_SUITE_P(States, AHookLeaves,
                         testing::Values(Leave{"Autocast", [] { at::autocast::set_autocast_enabled(at::kCPU, true); }},
                                         Leave{"AutocastDtype",
                                               [] {
                                                 at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
                                                 at::autocast::set_autocast_enabled(at::kCPU, true);
                                               }},
                                         Leave{"GradMode", [] { at::GradMode::set_enabled(true); }},
                                         Leave{"SavedTensorHooks", [] { at::SavedTensorDefaultHooks::disable("by a hook"); }}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hindcast::tests
