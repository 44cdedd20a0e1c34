// What a hook reads of the graph task when only some gradients are requested: which nodes will run, and whose gradients are results.
// Python's torch._C._will_engine_execute_node, and register_multi_grad_hook with it, read this.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/graph_task.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/programs.h"

namespace hindcast::tests {
namespace {

using torch::autograd::Node;
using Nodes = std::vector<std::pair<std::string, Node*>>;

/// An entry with defaults equals no entry: the stock engine creates one for the root.
std::string describe_node(Node* node) {
  const auto& info = *torch::autograd::get_current_graph_task_exec_info();
  if (info.empty()) return "all nodes run";
  const auto found = info.find(node);
  if (found == info.end()) return "no";
  std::string text = found->second.needed_ ? "needed" : found->second.captures_ ? "not needed" : "no";
  if (!found->second.captures_) return text;
  for (const auto& capture : *found->second.captures_)
    text += ", input " + std::to_string(capture.input_idx_) + " is result " + std::to_string(capture.output_idx_);
  // Where torch._C._will_engine_execute_node raises.
  const auto& in_graph = *torch::autograd::get_current_graph_task_nodes_in_graph();
  return text + (node->topological_nr() == 0 && in_graph.contains(node) ? ", a leaf" : "");
}

Node* node_of(const at::Tensor& tensor) { return torch::autograd::impl::gradient_edge(tensor).function.get(); }

struct Tensors {
  at::Tensor a = leaf({3}), b = leaf({3}), c = leaf({3}), mid, halves[2], aside, loss;
};

/// a -> mid -> halves -> loss, with b next to a and c next to all; the hook on the loss inspects every node.
Tensors graph(Log& log) {
  Tensors t;
  t.mid = (t.a * t.b).sin();
  const auto parts = t.mid.repeat({2}).split(3);
  t.halves[0] = parts[0], t.halves[1] = parts[1];
  t.aside = t.c.cos();
  t.loss = (t.halves[0] * 2 + t.halves[1] * t.aside).sum();
  const Nodes nodes = {{"a", node_of(t.a)},          {"b", node_of(t.b)},         {"c", node_of(t.c)},      {"mid", node_of(t.mid)},
                       {"split", node_of(parts[0])}, {"aside", node_of(t.aside)}, {"loss", node_of(t.loss)}};
  t.loss.register_hook([&log, nodes](const at::Tensor& gradient) {
    for (const auto& [name, node] : nodes) log.note(name + ": " + describe_node(node));
    return gradient;
  });
  return t;
}

void expect_same_info(const std::function<std::vector<at::Tensor>(const Tensors&)>& wanted) {
  expect_same_steps(3, [&](Log& log, int) {
    const Tensors t = graph(log);
    log.show("results", torch::autograd::grad({t.loss}, wanted(t)));
  });
}

TEST(ExecInfo, OfGradOfALeaf) {
  expect_same_info([](const Tensors& t) { return std::vector{t.a}; });
  expect_same_info([](const Tensors& t) { return std::vector{t.c, t.b}; });
}

TEST(ExecInfo, OfGradOfAResult) {
  expect_same_info([](const Tensors& t) { return std::vector{t.mid}; });
  expect_same_info([](const Tensors& t) { return std::vector{t.loss}; });
}

TEST(ExecInfo, OfGradOfAResultAndALeafBehindIt) {
  expect_same_info([](const Tensors& t) { return std::vector{t.a, t.mid, t.aside}; });
}

TEST(ExecInfo, OfGradOfTwoOutputsOfANode) {
  expect_same_info([](const Tensors& t) { return std::vector{t.halves[1], t.mid, t.halves[0]}; });
}

TEST(ExecInfo, OfGradOfATensorTwice) {
  expect_same_info([](const Tensors& t) { return std::vector{t.b, t.b}; });
}

TEST(ExecInfo, OfBackwardWithInputs) {
  expect_same_steps(3, [](Log& log, int) {
    const Tensors t = graph(log);
    torch::autograd::backward({t.loss}, {}, std::nullopt, false, {t.a, t.c});
    log.show("grads", {t.a.grad(), t.b.grad(), t.c.grad()});
  });
}

TEST(ExecInfo, OfBackward) {
  expect_same_steps(3, [](Log& log, int) {
    const Tensors t = graph(log);
    t.loss.backward();
    log.show("grads", {t.a.grad(), t.b.grad(), t.c.grad()});
  });
}

// LibTorch's engine does not list a single root.
TEST(ExecInfo, OfRootsAmongAllNodes) {
  for (const bool alone : {true, false}) {
    expect_same_steps(3, [alone](Log& log, int) {
      const Tensors t = graph(log);
      Node* const root = node_of(t.loss);
      Node* const inner = node_of(t.mid);
      t.loss.register_hook([&log, root, inner](const at::Tensor& gradient) {
        const auto& nodes = *torch::autograd::get_current_graph_task_nodes_in_graph();
        log.note("root: " + std::to_string(nodes.contains(root)) + ", inner: " + std::to_string(nodes.contains(inner)));
        return gradient;
      });
      alone ? torch::autograd::backward({t.loss}) : torch::autograd::backward({t.loss, t.aside.sum()});
      log.show("a.grad", t.a.grad());
    });
  }
}

}  // namespace
}  // namespace hindcast::tests
