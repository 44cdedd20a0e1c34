#include "bench/workload.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <unordered_set>
#include <utility>

namespace hindcast::bench {
namespace {

constexpr int64_t kTiny = 16;

at::Tensor leaf(at::Tensor values) { return values.set_requires_grad(true); }

}  // namespace

void Workload::clear_grads() const {
  for (const at::Tensor& leaf : leaves) {
    at::Tensor& grad = leaf.mutable_grad();
    if (!grad.defined()) continue;
    if (zero_in_place) {
      grad.zero_();
    } else {
      grad.reset();
    }
  }
}

size_t count_nodes(const at::Tensor& root) {
  std::unordered_set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  visit(root.grad_fn().get());
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen.size();
}

// The factors are near 1 and the steps small: the gradient of 10,000 ops neither overflows nor
// reaches the denormal numbers, which would be slow on both sides and prove nothing.
Workload mixed_chain(int ops) {
  const at::Tensor x = leaf(at::linspace(-0.1, 0.1, kTiny));
  return {{x}, [x, ops] {
            at::Tensor y = x;
            for (int i = 0; i < ops; ++i) {
              switch (i % 4) {
                case 0:
                  y = at::mul(y, 1.001);
                  break;
                case 1:
                  y = at::add(y, 1e-4);
                  break;
                case 2:
                  y = at::sin(y);
                  break;
                case 3:
                  y = at::tanh(y);
                  break;
              }
            }
            return y.sum();
          }};
}

Workload mul_chain(int ops) {
  const at::Tensor x = leaf(at::linspace(0.5, 1.5, kTiny));
  const at::Tensor factor = at::linspace(0.9995, 1.0005, kTiny);
  return {{x}, [x, factor, ops] {
            at::Tensor y = x;
            for (int i = 0; i < ops; ++i) y = at::mul(y, factor);
            return y.sum();
          }};
}

Workload hooked(Workload work) {
  work.leaves.front().register_hook([](const at::Tensor&) {});
  return work;
}

Workload zeroed_in_place(Workload work) {
  work.zero_in_place = true;
  return work;
}

Workload mul_leaves(int count) {
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < count; ++i) leaves.push_back(leaf(at::rand({8})));
  const at::Tensor factor = at::rand({8});
  return {leaves, [leaves, factor] {
            std::vector<at::Tensor> products;
            products.reserve(leaves.size());
            for (const at::Tensor& leaf : leaves) products.push_back(at::mul(leaf, factor));
            return at::cat(products).sum();
          }};
}

Workload residual(int64_t rows, int64_t columns) {
  const at::Tensor x = leaf(at::randn({rows, columns})), y = leaf(at::randn({rows, columns}));
  Workload work{{x, y}, [x, y] { return x.tanh() + y; }};
  work.incoming = at::randn({rows, columns});
  work.floor_bytes = 4.0 * static_cast<double>(work.incoming.nbytes());  // incoming, tanh's saved tensor, and two gradients
  return work;
}

Workload cat_leaves(int count) {
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < count; ++i) leaves.push_back(leaf(at::rand({8})));
  return {leaves, [leaves] { return at::cat(leaves).sin().sum(); }};
}

Workload sin_chain(int ops, int64_t floats) {
  const at::Tensor x = leaf(at::linspace(-1, 1, floats));
  return {{x}, [x, ops] {
            at::Tensor y = x;
            for (int i = 0; i < ops; ++i) y = at::sin(y);
            return y.sum();
          }};
}

}  // namespace hindcast::bench
