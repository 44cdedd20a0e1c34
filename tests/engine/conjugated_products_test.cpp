// Products of conjugated tensors: BLAS conjugates an operand, and rounds differently from a product with a copy. Formulas with such
// products give the stock engine's bits, at the capture and at hits.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <string>
#include <vector>

#include "hindcast/hindcast.h"

namespace hindcast::tests::conjugated_products_test {
namespace {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Case {
  std::string name;
  std::vector<std::vector<int64_t>> sizes;
  std::function<at::Tensor(const Tensors&)> function;
};

/// Its backward multiplies by conjugated and negated views of matrices, vectors and batches.
struct Products : torch::autograd::Function<Products> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0], g = gradients[0];
    const at::Tensor square = at::matmul(x.mH(), g), row = at::matmul(x.select(0, 1).conj(), square);
    const at::Tensor batch = at::matmul(x.unsqueeze(0).expand({2, -1, -1}).conj(), square.mH());
    const at::Tensor imaginary = at::imag(at::matmul(x, square.mT().conj()).conj());  // a negative view
    return {at::matmul(x.conj(), square.conj()) + row.conj() + batch.sum(0) + at::matmul(imaginary, at::real(x))};
  }
};

std::vector<Case> cases() {
  return {
      {"householder_product", {{6, 4}, {4}}, [](const Tensors& x) { return at::linalg_householder_product(x[0], x[1]); }},
      {"householder_product of a batch", {{3, 6, 4}, {3, 4}}, [](const Tensors& x) { return at::linalg_householder_product(x[0], x[1]); }},
      {"ormqr", {{6, 4}, {4}, {6, 3}}, [](const Tensors& x) { return at::ormqr(x[0], x[1], x[2]); }},
      {"ormqr, transposed", {{6, 4}, {4}, {6, 3}}, [](const Tensors& x) { return at::ormqr(x[0], x[1], x[2], true, true); }},
      {"lstsq", {{6, 4}, {6, 3}}, [](const Tensors& x) { return std::get<0>(at::linalg_lstsq(x[0], x[1])); }},
      {"a Function", {{5, 5}}, [](const Tensors& x) { return Products::apply(x[0]); }},
  };
}

Tensors gradients(const Case& of) {
  at::manual_seed(3);
  Tensors leaves;
  for (const auto& sizes : of.sizes) leaves.push_back(at::randn(sizes, at::kComplexFloat).set_requires_grad(true));
  const at::Tensor y = of.function(leaves);
  y.backward(at::randn_like(y));
  Tensors gradients;
  for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

TEST(ConjugatedProducts, HaveTheBitsOfTheStockEngine) {
  for (const Case& of : cases()) {
    hindcast::reset();
    const Tensors stock = gradients(of);
    Options options;
    options.compiler = compilers::eager();
    options.back_off = false;
    const auto guard = hindcast::enable(options);
    for (int call = 0; call < 3; ++call) {
      const Tensors ours = gradients(of);
      for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(ours[i].equal(stock[i])) << of.name << ", call " << call << ", " << i;
    }
    EXPECT_EQ(hindcast::stats().hits, 2U) << of.name;
  }
}

}  // namespace
}  // namespace hindcast::tests::conjugated_products_test
