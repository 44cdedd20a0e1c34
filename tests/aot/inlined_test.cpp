// One backward graph where the forward is compiled functions with eager ops between them.

#include "tests/aot/aot_grads.h"

#include <hindcast/graph.h>

#include <sstream>

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
  pieces(x, w).backward();  // traced, and known from here on
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

}  // namespace
}  // namespace hindcast::tests
