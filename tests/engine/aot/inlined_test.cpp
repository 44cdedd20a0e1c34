// One backward graph where the forward is compiled functions with eager ops between them.

#include "tests/engine/aot/aot_grads.h"

#include <hindcast/graph.h>
#include <torch/csrc/autograd/function_hook.h>

#include <sstream>

#include "tests/codegen/cpu/memory/counting_allocator.h"
#include "tests/support/kept_graphs.h"

namespace hindcast::tests {
namespace {

AotOptions now() {
  AotOptions options;
  options.async = false;
  return options;
}

struct ThreePieces {
  AotFunction<std::function<at::Tensor(at::Tensor, at::Tensor)>> first{
      [](const at::Tensor& x, const at::Tensor& w) { return (x * w).sin(); }, now()};
  AotFunction<std::function<at::Tensor(at::Tensor)>> second{[](const at::Tensor& x) { return x.exp() * x.sigmoid(); }, now()};
  AotFunction<std::function<at::Tensor(at::Tensor, at::Tensor)>> third{
      [](const at::Tensor& x, const at::Tensor& w) { return (x + w).tanh(); }, now()};

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& w) const {
    const auto a = first(x, w) * 2;
    const auto b = second(a).cumsum(0);
    return third(b, w).sum();
  }
};

at::Tensor eager(const at::Tensor& x, const at::Tensor& w) {
  const auto a = (x * w).sin() * 2;
  const auto b = (a.exp() * a.sigmoid()).cumsum(0);
  return (b + w).tanh().sum();
}

TEST(Inlined, ThreeFunctionsAreOneGraph) {
  torch::manual_seed(1);
  const auto x = torch::randn({6, 4}).requires_grad_(), w = torch::randn({6, 4}).requires_grad_();
  const ThreePieces pieces;
  pieces(x, w).backward();  // traced, and a hit from here on
  reset();
  std::ostringstream text;
  Options options;
  options.compiler = compilers::print(text);
  const auto guard = enable(options);
  for (int step = 0; step < 3; ++step) {
    x.mutable_grad() = w.mutable_grad() = at::Tensor();
    pieces(x, w).backward();
    const auto expected = torch::autograd::grad({eager(x, w)}, {x, w});
    EXPECT_TRUE(x.grad().equal(expected[0]));
    EXPECT_TRUE(w.grad().equal(expected[1]));
  }
  EXPECT_EQ(stats().opaque_nodes.count("AotFunctionBackward"), 0U);
  for (const char* name : {"aot0_tanh_backward", "aot1_sigmoid_backward", "aot2_cos", "cumsum"})
    EXPECT_NE(text.str().find(name), std::string::npos) << name << text.str();
}

// The first backward is traced; the programs of a user's compiler cannot be part of a graph. Both run as intended.
TEST(Inlined, FunctionsThatRunThemselvesAreNoOpaqueNodes) {
  torch::manual_seed(1);
  const auto x = torch::randn({6, 4}).requires_grad_(), w = torch::randn({6, 4}).requires_grad_();
  AotOptions users = now();
  users.bw_compiler = [](const std::shared_ptr<const Graph>& program, const Tensors&) -> ProgramFunction {
    return [program](Tensors inputs) { return run_program(*program, std::move(inputs)); };
  };
  const std::vector<std::function<at::Tensor(at::Tensor)>> losses = {[](const at::Tensor& y) { return y.sum(); },
                                                                     [](const at::Tensor& y) { return y.t().contiguous().sin().mean(); },
                                                                     [](const at::Tensor& y) { return (y * y).t().slice(0, 1).sum(); }};
  for (const AotOptions& options : {now(), users}) {
    for (const auto& loss : losses) {
      const auto f = aot_function([](at::Tensor a, at::Tensor b) { return (a * b).sin(); }, options);
      reset();
      const auto guard = enable();
      for (int i = 0; i < 8; ++i) {
        x.mutable_grad() = w.mutable_grad() = at::Tensor();
        loss(f(x, w)).backward();
      }
      const auto expected = torch::autograd::grad({loss((x * w).sin())}, {x, w});
      EXPECT_TRUE(at::allclose(x.grad(), expected[0], 1e-5, 1e-6));
      EXPECT_TRUE(at::allclose(w.grad(), expected[1], 1e-5, 1e-6));
      EXPECT_TRUE(stats().opaque_nodes.empty()) << stats();
      EXPECT_GE(stats().hits, 5U) << stats();
    }
  }
}

TEST(Inlined, FusionCrossesTheirBorders) {
  torch::manual_seed(1);
  const auto x = torch::randn({64, 128}).requires_grad_(), w = torch::randn({64, 128}).requires_grad_();
  const auto f = aot_function([](at::Tensor a, at::Tensor b) { return (a * b).sin(); }, now());
  const auto g = aot_function([](at::Tensor a) { return a.exp() * a.sigmoid(); }, now());
  const auto step = [&] { g(f(x, w) * 2).mul(3).sum().backward(); };
  step();
  reset();
  Options options;
  options.async = false;
  const auto guard = enable(options);
  for (int i = 0; i < 3; ++i) {
    x.mutable_grad() = w.mutable_grad() = at::Tensor();
    step();
  }
  EXPECT_EQ(stats().hits, 2U);
  const auto a = (x * w).sin() * 2;
  const auto expected = torch::autograd::grad({(a.exp() * a.sigmoid()).mul(3).sum()}, {x, w});
  EXPECT_TRUE(at::allclose(x.grad(), expected[0], 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(w.grad(), expected[1], 1e-5, 1e-6));
}

// Sixteen layers, each with a large weight. Each layer's gradient is allocated as its saved tensor is freed.
std::vector<at::Tensor> large_weights() {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 16; ++i) weights.push_back(torch::randn({1 << 15}).requires_grad_());
  return weights;
}

at::Tensor through_layers(const std::vector<at::Tensor>& x) {
  at::Tensor y = x[0];
  for (size_t i = 1; i < x.size(); ++i) y = (y * x[i]).sin();
  return y.sum();
}

class CountsCalls final : public torch::autograd::FunctionPostHook {
 public:
  explicit CountsCalls(int& calls) : calls_(calls) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    ++calls_;
    return outputs;
  }

 private:
  int& calls_;
};

TEST(Inlined, SavedTensorsLeaveWithTheirLastUse) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({1 << 15});
  const std::vector<at::Tensor> weights = large_weights();
  std::vector<at::Tensor> inputs = {x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  const auto f = aot_function([](const std::vector<at::Tensor>& all) { return through_layers(all); }, now());
  const auto peak_of = [&](const std::function<at::Tensor()>& loss) {
    const auto step = [&] {
      for (const at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
      loss().backward();
    };
    for (int i = 0; i < 4; ++i) step();
    for (const at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
    trim();
    codegen::cpu::CountingAllocator counted;
    step();
    return codegen::cpu::CountingAllocator::most().load();
  };
  const int64_t stock = peak_of([&] { return through_layers(inputs); });
  reset();
  Options options;
  options.async = false;
  const auto guard = enable(options);
  const int64_t ours = peak_of([&] { return f(inputs); });
  EXPECT_GE(stats().hits, 3U);
  EXPECT_LE(ours, stock + stock / 50);
}

// Twice if the graph is kept, and not again after a backward that did not keep it; with and without hooks.
TEST(Inlined, WhatIsKeptIsThereForTheNextBackward) {
  torch::manual_seed(1);
  const auto x = torch::randn({6, 4}).requires_grad_();
  const auto f = aot_function([](at::Tensor a) { return a.sin().exp(); }, now());
  const at::Tensor slope = torch::autograd::grad({x.sin().exp().sum()}, {x})[0];
  f(x).sum().backward();
  reset();
  const auto guard = enable();
  for (const bool has_hook : {false, true}) {
    for (int i = 0; i < 3; ++i) {
      x.mutable_grad() = at::Tensor();
      int calls = 0;
      const at::Tensor y = f(x);
      if (has_hook) y.grad_fn()->add_post_hook(std::make_unique<CountsCalls>(calls));
      y.sum().backward({}, /*retain_graph=*/true);
      y.sum().backward();
      EXPECT_TRUE(at::allclose(x.grad(), 2 * slope));
      EXPECT_THROW(y.sum().backward(), std::runtime_error);
      EXPECT_EQ(calls, has_hook ? 2 : 0);
    }
  }
}

TEST(Inlined, HooksBetweenPiecesAreCalled) {
  torch::manual_seed(1);
  const auto x = torch::randn({6, 4}).requires_grad_();
  const auto f = aot_function([](at::Tensor a) { return a.sin(); }, now());
  int calls = 0;
  const auto step = [&](bool is_eager) {
    const auto y = is_eager ? x.sin() : f(x);
    y.register_hook([&](at::Tensor gradient) {
      ++calls;
      return gradient * 3;
    });
    const auto z = is_eager ? y.sin() : f(y);
    return torch::autograd::grad({z.sum()}, {x})[0];
  };
  step(false);
  const auto expected = step(true);
  Options options;
  options.compiler = compilers::eager();
  const auto guard = enable(options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step(false).equal(expected));
  EXPECT_EQ(calls, 5);
}

TEST(Inlined, SizesThatChangeStayOneGraph) {
  const auto w = torch::randn({4}).requires_grad_();
  const auto f = aot_function([](at::Tensor a, at::Tensor b) { return (a * b).sin().sum(0); }, now());
  Options options;
  options.compiler = compilers::eager();
  for (const int64_t rows : {3, 5, 7, 9, 11, 13}) {
    torch::manual_seed(rows);
    const auto x = torch::randn({rows, 4});
    const auto expected = torch::autograd::grad({((x * w).sin().sum(0) * 2).sum()}, {w})[0];
    const auto guard = enable(options);
    EXPECT_TRUE(torch::autograd::grad({(f(x, w) * 2).sum()}, {w})[0].equal(expected)) << rows;
  }
  EXPECT_LE(f.stats().traces, 2U);
  EXPECT_EQ(f.stats().hits, 4U);
}

// The capture does not know that the sizes of weights without gradients are constant. The program does, and its ops share kernels.
TEST(Inlined, WidthsAreThoseOfTheProgram) {
  torch::manual_seed(1);
  const auto w = torch::randn({48, 48});
  const auto f = aot_function([](at::Tensor a, at::Tensor b) { return a.mm(b).tanh().mm(b).sigmoid().sum(); }, now());
  KeptGraphs kept;
  const auto guard = enable(kept.compiler());
  for (const int64_t rows : {30, 50, 70, 90, 40, 60}) {
    const auto x = torch::randn({rows, 48}).requires_grad_();
    f(x, w).backward();
  }
  ASSERT_FALSE(kept.graphs.empty());
  const std::string text = kept.graphs.back()->print();
  EXPECT_NE(text.find("aot0_tanh_backward: \"f32[s"), std::string::npos) << text;
  for (const char* wrong : {", s1]", ", s0]"}) EXPECT_EQ(text.find(wrong), std::string::npos) << text;
}

}  // namespace
}  // namespace hindcast::tests
