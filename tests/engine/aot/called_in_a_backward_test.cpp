// Compiled functions that are called while a backward runs: in the backward of a custom Function, or in the recomputation of a checkpoint.

#include <hindcast/aot.h>
#include <hindcast/graph.h>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>

namespace hindcast::tests::called_in_a_backward_test {
namespace {

struct Cubed : torch::autograd::Function<Cubed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.pow(3);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients);
};

at::Tensor slope(const at::Tensor& x, const at::Tensor& gradient) { return x.square() * 3 * gradient; }

const AotFunction<decltype(&slope)>& compiled_slope() {
  static const auto f = aot_function(&slope);
  return f;
}

torch::autograd::variable_list Cubed::backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
  return {compiled_slope()(context->get_saved_variables()[0], gradients[0])};
}

TEST(CalledInABackward, RunsItsProgram) {
  for (int i = 0; i < 3; ++i) {
    const auto x = at::linspace(0, 1, 4).set_requires_grad(true);
    Cubed::apply(x).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), x.detach().square() * 3));
  }
  EXPECT_EQ(compiled_slope().stats().traces, 1U);
  EXPECT_EQ(compiled_slope().stats().hits, 2U);
}

/// Like a checkpoint: no history in the forward; the backward restores LibTorch's generator and recomputes with grad mode on.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  using Of = std::function<at::Tensor(const at::Tensor&)>;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Of* of) {
    context->save_for_backward({x, at::detail::getDefaultCPUGenerator().get_state()});
    context->saved_data["of"] = reinterpret_cast<int64_t>(of);
    return (*of)(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor now = generator.get_state();
    generator.set_state(saved[1]);
    const at::AutoGradMode grad(true);
    const auto x = saved[0].detach().requires_grad_();
    (*reinterpret_cast<const Of*>(context->saved_data["of"].toInt()))(x).backward(gradients[0]);
    generator.set_state(now);
    return {x.grad(), at::Tensor()};
  }
};

at::Tensor drop(const at::Tensor& x) { return at::dropout(x, 0.5, true) * 2; }

AotOptions with_kernels() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.async = false;
  return options;
}

void expect_one_mask(const Checkpointed::Of& of, const std::string& where) {
  const auto x = torch::ones({1000}, torch::requires_grad());
  const auto y = Checkpointed::apply(x, &of);
  y.sum().backward();
  EXPECT_TRUE((y != 0).equal(x.grad() != 0)) << where;
}

TEST(CalledInABackward, ACheckpointDrawsTheSameNumbersAgain) {
  const auto f = aot_function(&drop, with_kernels());
  for (int i = 0; i < 6; ++i) expect_one_mask(f, std::to_string(i));
  EXPECT_GE(f.stats().hits, 8U);
}

TEST(CalledInABackward, ACheckpointOfAFunctionThatIsKnownAlready) {
  const auto f = aot_function(&drop, with_kernels());
  for (int i = 0; i < 3; ++i) f(torch::ones({1000}, torch::requires_grad())).sum().backward();
  for (int i = 0; i < 6; ++i) {
    expect_one_mask(f, std::to_string(i));
    const auto x = torch::ones({1000}, torch::requires_grad());
    const auto y = f(x);
    y.sum().backward();
    EXPECT_TRUE((y != 0).equal(x.grad() != 0)) << i;
  }
}

// One of the two calls cannot become a program, the other can.
TEST(CalledInABackward, ACheckpointOfAFunctionThatRunsAsItIsWithoutGradMode) {
  const auto f = aot_function(
      [](const at::Tensor& x) {
        const at::Tensor y = drop(x);
        return at::GradMode::is_enabled() ? y : y + 0 * std::get<0>(at::unique_consecutive(y)).size(0);
      },
      with_kernels());
  for (int i = 0; i < 3; ++i) f(torch::ones({1000}, torch::requires_grad())).sum().backward();
  for (int i = 0; i < 4; ++i) expect_one_mask(f, std::to_string(i));
  EXPECT_GE(f.stats().eager, 3U);
  EXPECT_GE(f.stats().hits, 4U);
}

// A forward without history, and later one with history from the same generator state, as in gradients of large batches.
TEST(CalledInABackward, WithoutHistoryFirstAndWithItThen) {
  const auto f = aot_function(&drop, with_kernels());
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  for (int i = 0; i < 5; ++i) {
    const auto x = torch::ones({1000}, torch::requires_grad());
    const at::Tensor before = generator.get_state();
    at::Tensor first;
    {
      const at::NoGradGuard no_grad;
      first = f(x);
    }
    generator.set_state(before);
    const at::Tensor second = f(x);
    second.sum().backward();
    EXPECT_TRUE(first.equal(second)) << i;
  }
}

// Outside of such recomputations, kernels still draw the numbers.
TEST(CalledInABackward, KernelsDrawWhereNobodyDrawsAgain) {
  const auto f = aot_function(&drop, with_kernels());
  for (int i = 0; i < 3; ++i) f(torch::ones({1000}, torch::requires_grad())).sum().backward();
  EXPECT_NE(f.core().programs().at(0).forward->print().find("philox"), std::string::npos);
}

}  // namespace
}  // namespace hindcast::tests::called_in_a_backward_test
