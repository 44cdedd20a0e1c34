// Compiled functions that are called while a backward runs: in the backward of a custom Function, or where a checkpoint computes again.

#include <hindcast/aot.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

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

}  // namespace
}  // namespace hindcast::tests::called_in_a_backward_test
