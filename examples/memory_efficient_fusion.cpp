// memory_efficient_fusion(): fused, with little saved between forward and backward. A number among the arguments is part of the program:
// another number needs another program.

#include <hindcast/aot.h>
#include <torch/torch.h>

#include <iostream>
#include <vector>

namespace {

using torch::Tensor;

constexpr int64_t kNormAxis = 2;

Tensor fn(const Tensor& a, const Tensor& b, const Tensor& c, int64_t norm_axis) {
  const Tensor x = a + b;
  const Tensor y = torch::layer_norm(x, {x.size(norm_axis)});
  return y + c;
}

std::vector<Tensor> three(torch::IntArrayRef sizes) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 3; ++i) leaves.push_back(torch::randn(sizes, torch::requires_grad()));
  return leaves;
}

}  // namespace

int main() {
  const auto in = three({2, 4, 8});
  const Tensor expected = fn(in[0], in[1], in[2], kNormAxis);
  expected.sum().backward();

  // The fourth argument is not a tensor.
  const auto aot_fn = hindcast::memory_efficient_fusion(fn, {3});

  for (int call = 0; call < 3; ++call) {
    std::vector<Tensor> copies;
    for (const Tensor& leaf : in) copies.push_back(leaf.detach().clone().requires_grad_());
    const Tensor result = aot_fn(copies[0], copies[1], copies[2], kNormAxis);
    result.sum().backward();
    bool is_equal = torch::allclose(result, expected);
    // A layer norm's gradient for ones is zero up to rounding.
    for (size_t i = 0; i < 3; ++i) is_equal = is_equal && torch::allclose(copies[i].grad(), in[i].grad(), 1e-5, 1e-6);
    std::cout << "call " << call << ": result and gradients are " << (is_equal ? "the function's" : "WRONG") << '\n';
  }
  std::cout << aot_fn.stats().traces << " trace, " << aot_fn.stats().hits << " hits\n\n";
  hindcast::print_graph(aot_fn, std::cout);
}
