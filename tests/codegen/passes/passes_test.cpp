// What is removed from a graph before fusion, what stays, and that results do not change.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/cpu/cost_model.h"
#include "codegen/passes/dead_code.h"
#include "codegen/passes/pipeline.h"
#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/forward_program.h"
#include "tests/support/kept_graphs.h"
#include "tests/support/log_capture.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests::passes_test {
namespace {

using capture::Arg;
using capture::EventOrder;
using capture::EventUse;
using capture::InstrKind;
using capture::ValueId;

at::Tensor leaf_of(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

template <class Backward>
std::shared_ptr<const Graph> graph_of(const Backward& backward) {
  hindcast::reset();
  KeptGraphs kept;
  const auto guard = hindcast::enable(kept.compiler());
  backward();
  return kept.graphs.at(0);
}

codegen::Optimised optimise(std::shared_ptr<const Graph> graph) { return codegen::optimise(std::move(graph), codegen::cpu::cost_model()); }

size_t count(const Graph& graph, std::string_view op) {
  return static_cast<size_t>(std::count_if(graph.instrs.begin(), graph.instrs.end(),
                                           [&](const capture::Instr& instr) { return instr.op && instr.op->operator_name().name == op; }));
}

/// How many calls of `op` there are before and after the passes.
struct Counts {
  size_t before, behind;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, Counts counts) { return out << counts.before << " -> " << counts.behind; }

template <class Backward>
Counts counts_of(std::string_view op, const Backward& backward) {
  const auto graph = graph_of(backward);
  return {count(*graph, op), count(*optimise(graph).graph, op)};
}

/// Bit by bit what the stock engine computes, with plans of the optimised graphs; close to it with kernels.
void expect_same_results(const std::function<Tensors(at::TensorOptions)>& program, NearGrads near = {.fused_graphs = 0, .misses = 2}) {
  Options through_aten;
  through_aten.compiler = compilers::fused_through_aten();
  through_aten.async = false;
  const auto seeded = [&](uint64_t seed) {
    at::manual_seed(seed);
    return program(at::kFloat);
  };
  EXPECT_TRUE(expect_same_grads(seeded, {1, 2, 3, 4}, through_aten));
  expect_near_grads(program, near);
}

// ---- transposed factors

/// A cell whose weight is read by as many products as there are steps, from the outside or as a view of a wider tensor.
Tensors recurrent(int steps, at::IntArrayRef state_sizes, int64_t width, at::TensorOptions options) {
  const at::Tensor weight = near_leaf({width, width}, options), x = near_leaf(state_sizes, options);
  at::Tensor state = x;
  for (int i = 0; i < steps; ++i) state = at::linear(state, weight).tanh();
  state.sum().backward();
  return {x.grad(), weight.grad()};
}

Counts copies_of(int steps, int64_t width, const std::function<at::Tensor(const at::Tensor& weight)>& weight_of) {
  const Tensors inputs = {at::randn({4, width}), at::randn({width, width})};
  const ForwardProgram program(
      [&](const Tensors& in) {
        at::Tensor state = in[0], weight = weight_of(in[1]);
        for (int i = 0; i < steps; ++i) state = at::linear(state, weight).tanh();
        return Tensors{state};
      },
      inputs);
  const auto is_copy = [](const std::string& name) { return name == "aten::t_copy"; };
  return {0, static_cast<size_t>(std::count_if(program.left().begin(), program.left().end(), is_copy))};
}

TEST(TransposedFactors, AreCopiedOnce) {
  const auto itself = [](const at::Tensor& weight) { return weight; };
  EXPECT_EQ(copies_of(5, 32, itself), (Counts{0, 1}));
  EXPECT_EQ(copies_of(3, 32, itself), (Counts{0, 0}));                                               // too few products
  EXPECT_EQ(copies_of(5, 600, itself), (Counts{0, 0}));                                              // too large
  EXPECT_EQ(copies_of(5, 32, [](const at::Tensor& weight) { return weight.t(); }), (Counts{0, 0}));  // as it is
  EXPECT_EQ(copies_of(5, 32, [](const at::Tensor& weight) { return weight.t().contiguous().t(); }), (Counts{0, 0}));
}

TEST(TransposedFactors, ResultsDoNotChange) {
  for (const int64_t width : {1, 2, 7, 32, 65}) {
    SCOPED_TRACE(width);
    expect_same_results([&](at::TensorOptions options) { return recurrent(6, {5, width}, width, options); }, {.units_in_double = 64});
  }
}

// ---- simplify

TEST(Simplify, AWeightsGradientTransposedTwice) {
  const auto linear = [] { at::linear(at::randn({4, 3}), leaf_of({5, 3})).tanh().sum().backward(); };
  EXPECT_EQ(counts_of("aten::t", linear), (Counts{3, 1}));
}

TEST(Simplify, NotWhereAHookIsShownTheView) {
  const auto hooked = [] {
    const auto w = leaf_of({5, 3});
    w.register_hook([](at::Tensor gradient) { return gradient * 2; });
    at::linear(at::randn({4, 3}), w).tanh().sum().backward();
  };
  EXPECT_EQ(counts_of("aten::t", hooked), (Counts{3, 3}));
}

TEST(Simplify, AConjugateOfAConjugate) {
  const auto backward = [] {
    const auto x = at::randn({3}, at::kComplexFloat).set_requires_grad(true);
    (at::conj(at::conj(x)) * at::randn({3}, at::kComplexFloat)).sum().backward(at::ones({}, at::kComplexFloat));
  };
  const Counts counts = counts_of("aten::_conj", backward);
  EXPECT_EQ(counts.before, counts.behind + 2);
}

TEST(Simplify, AShapeTakenBack) {
  const auto backward = [] { (leaf_of({2, 3}).view({6}).view({3, 2}).view({2, 3}) * 2).sum().backward(); };
  EXPECT_EQ(counts_of("aten::view", backward), (Counts{3, 0}));
}

TEST(Simplify, NotAnotherShape) {
  const auto backward = [] { (leaf_of({2, 3}).view({6}).view({3, 2}) * 2).sum().backward(); };
  EXPECT_EQ(counts_of("aten::view", backward), (Counts{2, 2}));
}

// The leaf takes the view as its gradient. The caller's own tensor must not become a view.
TEST(Simplify, NotAViewOfTheCallersGradientThatALeafGets) {
  const auto backward = [] { leaf_of({2, 3}).view({6}).view({2, 3}).backward(at::ones({2, 3})); };
  EXPECT_EQ(counts_of("aten::view", backward), (Counts{2, 2}));
}

TEST(Simplify, APowerOfOne) {
  EXPECT_EQ(counts_of("aten::pow", [] { leaf_of({4}).pow(2).sum().backward(); }), (Counts{1, 0}));
  EXPECT_EQ(counts_of("aten::pow", [] { leaf_of({4}).pow(3).sum().backward(); }), (Counts{1, 1}));
}

TEST(Simplify, AMeanOfOneNumber) {
  EXPECT_EQ(counts_of("aten::div", [] { leaf_of({4}).tanh().sum().mean().mul(3).backward(); }), (Counts{1, 0}));
  EXPECT_EQ(counts_of("aten::div", [] { leaf_of({4}).tanh().mean().mul(3).backward(); }), (Counts{1, 1}));
}

TEST(Simplify, ANumberDividedByOneIsTheLeafsOwn) {
  const auto backward = [] { leaf_of({}).mean().backward(); };
  EXPECT_EQ(counts_of("aten::div", backward), (Counts{1, 1}));
}

TEST(Simplify, AScaleOfOne) {
  EXPECT_EQ(counts_of("aten::mul", [] { leaf_of({4}).sin().mul(1.0).tanh().sum().backward(); }), (Counts{2, 1}));
  EXPECT_EQ(counts_of("aten::mul", [] { leaf_of({4}).sin().mul(-1.0).tanh().sum().backward(); }), (Counts{2, 2}));
  // A complex product would contain an infinite part times 0.
  const auto complex = [] {
    const auto x = at::randn({4}, at::kComplexFloat).set_requires_grad(true);
    x.mul(1.0).mul(x).sum().backward(at::ones({}, at::kComplexFloat));
  };
  const Counts counts = counts_of("aten::mul", complex);
  EXPECT_EQ(counts.before, counts.behind);
}

// For each written view of a tensor, LibTorch copies the gradient of the whole tensor.
at::Tensor written_row_by_row(const at::Tensor& x, const at::Tensor& w) {
  auto rows = at::zeros({4, 5}, x.options());
  for (int64_t i = 0; i < 4; ++i) rows.select(0, i).copy_((x * w[i]).tanh());
  return rows;
}

TEST(Simplify, CopiesOfTheGradientOfWhatWasWrittenPieceByPiece) {
  const auto backward = [] { written_row_by_row(leaf_of({5}), leaf_of({4})).pow(3).sum().backward(); };
  EXPECT_EQ(counts_of("aten::copy_", backward), (Counts{7, 3}));
  expect_same_results(
      [](at::TensorOptions options) {
        const auto x = at::randn({5}, options).set_requires_grad(true), w = at::randn({4}, options).set_requires_grad(true);
        written_row_by_row(x, w).pow(3).sum().backward();
        return Tensors{x.grad(), w.grad()};
      },
      {.misses = 1, .units_in_double = 32});  // sums that cancel
}

TEST(Simplify, NotOfAGradientThatSomebodyElseHas) {
  const auto hooked = [] {
    const auto rows = written_row_by_row(leaf_of({5}), leaf_of({4}));
    rows.register_hook([](const at::Tensor&) {});
    rows.pow(3).sum().backward();
  };
  EXPECT_EQ(counts_of("aten::copy_", hooked), (Counts{7, 4}));
  const auto read_again = [] {
    const auto x = leaf_of({4, 5}), w = leaf_of({5});
    auto base = x.sin();
    (base * w).sum().backward({}, true);
    const auto copy = base.clone();
    base.select(0, 1).mul_(w);
    (base + copy).pow(3).sum().backward();
  };
  const Counts counts = counts_of("aten::copy_", read_again);
  EXPECT_EQ(counts.before, counts.behind);
}

TEST(Simplify, NotWhereThePieceIsCountedFromTheStoragesBeginning) {
  const auto diagonal = [] {
    auto base = leaf_of({4, 4}).sin();
    base.diagonal().copy_(leaf_of({4}));
    base.pow(3).sum().backward();
  };
  EXPECT_EQ(counts_of("aten::as_strided", diagonal), (Counts{1, 1}));
  EXPECT_EQ(counts_of("aten::copy_", diagonal), (Counts{2, 2}));
}

// Between the copy and its last reader another leaf's gradient is written, possibly the very tensor that was copied.
TEST(Simplify, NotACopyThatIsReadAfterALeafHasAccumulated) {
  const auto run = [](bool ours) {
    hindcast::reset();
    const auto x = at::ones({3}).requires_grad_(), y = at::full({3}, 2.0f).requires_grad_();
    y.mutable_grad() = at::full({3}, 5.0f);
    Options options;
    options.compiler = compilers::fused_through_aten();
    options.async = false;
    options.enabled = ours;
    const auto guard = hindcast::enable(options);
    for (int step = 0; step < 3; ++step) {
      const auto z = x.tanh().sin();
      ((z + y) * 1.0).backward(y.grad());
    }
    return Tensors{x.grad(), y.grad()};
  };
  const auto stock = run(false), ours = run(true);
  for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(stock[i].equal(ours[i])) << i << stock[i] << ours[i];
}

TEST(Simplify, LeavesEveryBitOfOddNumbers) {
  expect_same_results([](at::TensorOptions options) {
    const auto x = at::randn({64}, options);
    const double infinity = std::numeric_limits<double>::infinity();
    for (const auto& [place, number] : {std::pair(0, 0.0), {1, -0.0}, {2, infinity}, {3, -infinity}, {4, std::nan("")}, {5, 1e-42}})
      x[place].fill_(number);
    x.requires_grad_();
    const auto y = x.mul(1.0).pow(2).view({8, 8}).view({64}).div(1) + x;
    y.sum().mean().backward();
    return Tensors{x.grad()};
  });
}

// ---- fills

// ones_like, zeros_like, and their negative, product and quotient.
TEST(Fills, ANumberOfTheFirstGradient) {
  const Function function = [](const Tensors& in) {
    const at::Tensor one = at::ones_like(in[0].sum()), third = one / 3;
    return Tensors{in[0] * third, in[0] * (-third * 0.1), in[0] / (third * third), in[0] + at::zeros_like(one).neg()};
  };
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
    const Tensors given = {at::linspace(-2, 2, 37).to(type)};
    const ForwardProgram program(function, given);
    if (type != at::kHalf) EXPECT_EQ(program.left(), (Names{"aten::full", "aten::full", "aten::full", "aten::full"}));
    expect_near(program.run(given), function(given), function(as(given, at::kDouble)));
  }
}

TEST(Fills, OnesThatTheProgramReturnsAreNew) {
  const Function function = [](const Tensors& in) { return Tensors{at::ones_like(in[0].sum()) * 2}; };
  const Tensors given = {at::ones({3})};
  const ForwardProgram program(function, given);
  program.run(given)[0].zero_();
  EXPECT_EQ(program.run(given)[0].item<float>(), 2);
}

TEST(Fills, NewTensorsReadNoTensor) {
  const Function function = [](const Tensors& in) {
    const at::Tensor x = in[0].exp();
    return Tensors{x + x.new_zeros({4}) * x.new_ones({4}) + x.new_full({3, 4}, 0.25), x.new_zeros({2}, at::kInt), x.new_full({}, 7)};
  };
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const Tensors given = {at::linspace(-2, 2, 12).reshape({3, 4}).to(type)};
    const ForwardProgram program(function, given);
    EXPECT_THAT(program.left(), testing::Each(testing::AnyOf("aten::zeros", "aten::ones", "aten::full")));
    expect_near(program.run(given), function(given), function(as(given, at::kDouble)));
    EXPECT_EQ(program.run(given)[1].scalar_type(), at::kInt);
  }
}

// ---- numbers

// As Python's `x + 0.1`, which makes a tensor of the number.
TEST(Numbers, ThatAreAddedTo16Bits) {
  const Function function = [](const Tensors& in) {
    const auto number = [](const at::Scalar& value) { return at::native::wrapped_scalar_tensor(value); };
    return Tensors{in[0] + number(1.003), in[0] - number(1e-9), at::sub(in[0], number(0.1), 2), number(3) + in[0].neg()};
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    const Tensors given = {at::linspace(-2, 2, 37).to(type)};
    const ForwardProgram program(function, given);
    if (type != at::kFloat) EXPECT_EQ(program.left(), (Names{"aten::lift_fresh", "aten::add.Tensor"}));
    const Tensors seen = program.run(given), stock = function(given);
    for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::equal(seen[i], stock[i])) << i;
  }
}

// ---- common_subexpressions

TEST(CommonSubexpressions, TwoBiasesOfOneSum) {
  const auto backward = [] {
    (at::linear(at::randn({4, 3}), leaf_of({5, 3}), leaf_of({5})) + at::linear(at::randn({4, 2}), leaf_of({5, 2}), leaf_of({5})))
        .tanh()
        .sum()
        .backward();
  };
  EXPECT_EQ(counts_of("aten::sum", backward), (Counts{2, 1}));
  EXPECT_EQ(counts_of("aten::view", backward), (Counts{2, 1}));
}

/// b and d get one gradient, which is computed twice.
struct Differences {
  at::Tensor a = leaf_of({4, 4}), b = leaf_of({4, 4}), c = leaf_of({4, 4}), d = leaf_of({4, 4});
  at::Tensor loss() const {
    const auto last = a - b, first = c - d;  // by their order in the backward
    return (last + first).tanh().sum();
  }
};

TEST(CommonSubexpressions, OneGradientOfTwoLeaves) {
  EXPECT_EQ(counts_of("aten::neg", [] { Differences().loss().backward(); }), (Counts{2, 1}));
}

TEST(CommonSubexpressions, NotAResultOfGrad) {
  const auto backward = [] {
    const Differences x;
    torch::autograd::grad({x.loss()}, {x.b, x.d});
  };
  EXPECT_EQ(counts_of("aten::neg", backward), (Counts{2, 2}));
}

TEST(CommonSubexpressions, NotWhatAHookIsShown) {
  const auto backward = [] {
    const Differences x;
    x.d.register_hook([](at::Tensor gradient) { return gradient.mul_(2); });
    x.loss().backward();
  };
  EXPECT_EQ(counts_of("aten::neg", backward), (Counts{2, 2}));
}

TEST(CommonSubexpressions, NotAcrossUserCode) {
  const auto backward = [] {
    const Differences x;
    const auto handle = hindcast::on_grad_ready(x.d, [](const at::Tensor&) {});
    x.loss().backward();
  };
  EXPECT_EQ(counts_of("aten::neg", backward), (Counts{2, 2}));
}

TEST(CommonSubexpressions, NotWhatIsLargeAndDone) {
  const auto backward = [](int64_t n) {
    return [n] { ((leaf_of({n}) - leaf_of({n})) + (leaf_of({n}) - leaf_of({n}))).tanh().sum().backward(); };
  };
  EXPECT_EQ(counts_of("aten::neg", backward(1 << 10)), (Counts{2, 1}));
  EXPECT_EQ(counts_of("aten::neg", backward(1 << 20)), (Counts{2, 2}));
}

TEST(CommonSubexpressions, NotOtherNumbers) {
  const auto scaled = [](double one, double other) {
    return [=] { (leaf_of({4}).mul(one) + leaf_of({4}).mul(other)).tanh().sum().backward(); };
  };
  EXPECT_EQ(counts_of("aten::mul", scaled(3, 3)), (Counts{2, 1}));
  EXPECT_EQ(counts_of("aten::mul", scaled(3, 4)), (Counts{2, 2}));
  EXPECT_EQ(counts_of("aten::mul", scaled(0.0, -0.0)), (Counts{2, 2}));
}

// Each takes the other's memory through a view: two leaves would share one gradient.
TEST(CommonSubexpressions, NotWhatTwoLeavesGetInTwoShapes) {
  const auto backward = [] {
    const auto a = leaf_of({6}), b = leaf_of({6}), c = leaf_of({3, 2});
    ((a.view({2, 3}) * 3) + (b.view({2, 3}) * 3) + (c.view({2, 3}) * 3)).tanh().sum().backward();
  };
  EXPECT_EQ(counts_of("aten::mul", backward), (Counts{3, 3}));
}

TEST(CommonSubexpressions, LeavesStayApart) {
  hindcast::reset();
  for (const auto& compiler : {compilers::fused(), compilers::fused_through_aten()}) {
    Options options;
    options.compiler = compiler;
    options.async = false;
    const auto guard = hindcast::enable(options);
    for (int step = 0; step < 3; ++step) {
      const Differences x;
      x.loss().backward();
      EXPECT_TRUE(x.b.grad().equal(x.d.grad()));
      EXPECT_FALSE(x.b.grad().is_alias_of(x.d.grad()));
      const auto w1 = leaf_of({5, 3}), w2 = leaf_of({5, 2}), b1 = leaf_of({5}), b2 = leaf_of({5});
      (at::linear(at::randn({4, 3}), w1, b1) + at::linear(at::randn({4, 2}), w2, b2)).tanh().sum().backward();
      EXPECT_TRUE(b1.grad().equal(b2.grad()));
      EXPECT_FALSE(b1.grad().is_alias_of(b2.grad()));
    }
  }
}

// The sum of two gradients is written to the first, here before the second leaf has taken it.
TEST(CommonSubexpressions, ASumDoesNotOverwriteWhatIsShared) {
  const auto program = [](at::TensorOptions options) {
    const auto a = near_leaf({6, 6}, options), b = near_leaf({6, 6}, options), c = near_leaf({6, 6}, options);
    const auto d = near_leaf({6, 6}, options), w = at::randn({6, 6}).to(options.dtype());
    const auto last = c - d;
    const auto product = at::mm(b, w);
    (a - b + product + last).tanh().sum().backward();
    return Tensors{a.grad(), b.grad(), c.grad(), d.grad()};
  };
  const auto optimised = optimise(graph_of([&] { program(at::kFloat); })).graph;
  ASSERT_EQ(count(*optimised, "aten::neg"), 1U);
  const auto neg = std::find_if(optimised->instrs.begin(), optimised->instrs.end(),
                                [](const auto& instr) { return instr.op && instr.op->operator_name().name == "aten::neg"; });
  const auto sum = std::find_if(neg, optimised->instrs.end(), [](const auto& instr) { return instr.kind == InstrKind::AddGrads; });
  ASSERT_NE(sum, optimised->instrs.end());
  EXPECT_EQ(sum->inputs[0], neg->outputs[0]);
  EXPECT_TRUE(std::any_of(std::next(sum), optimised->instrs.end(), [&](const auto& instr) {
    return instr.kind == InstrKind::Event && instr.use == EventUse::Keep && !instr.inputs.empty() && instr.inputs[0] == neg->outputs[0];
  }));
  expect_same_results(program, {.misses = 1});
}

TEST(CommonSubexpressions, ToLeavesThatHaveGradients) {
  expect_same_results([](at::TensorOptions options) {
    Tensors leaves;
    for (int i = 0; i < 4; ++i) leaves.push_back(near_leaf({5, 3}, options));
    for (int step = 0; step < 3; ++step) {
      ((leaves[0] - leaves[1]) + (leaves[2] - leaves[3])).tanh().sum().backward();
      for (const at::Tensor& leaf : leaves) leaf.mutable_grad().mul_(0.5);
    }
    Tensors grads;
    for (const at::Tensor& leaf : leaves) grads.push_back(leaf.grad());
    return grads;
  });
}

TEST(CommonSubexpressions, OfARetainedGraph) {
  expect_same_results([](at::TensorOptions options) {
    const auto x = near_leaf({4, 3}, options), w1 = near_leaf({5, 3}, options), w2 = near_leaf({5, 3}, options);
    const auto b1 = near_leaf({5}, options), b2 = near_leaf({5}, options);
    const auto loss = (at::linear(x, w1, b1) + at::linear(x.pow(2), w2, b2)).tanh().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return Tensors{x.grad(), w1.grad(), w2.grad(), b1.grad(), b2.grad()};
  });
}

TEST(CommonSubexpressions, WithHooksBetween) {
  expect_same_results(
      [](at::TensorOptions options) {
        Tensors leaves, seen;
        for (int i = 0; i < 6; ++i) leaves.push_back(near_leaf({5, 3}, options));
        const auto inner = (leaves[0] - leaves[1]) + (leaves[2] - leaves[3]);
        inner.register_hook([](at::Tensor gradient) { return gradient * 2; });
        const auto outer = inner + (leaves[4] - leaves[5]);
        leaves[5].register_hook([&](at::Tensor gradient) {
          seen.push_back(gradient.clone());
          return gradient.mul_(3);
        });
        const auto handle = hindcast::on_grad_ready(leaves[3], [](const at::Tensor& leaf) { leaf.mutable_grad().mul_(7); });
        outer.tanh().sum().backward();
        for (const at::Tensor& leaf : leaves) seen.push_back(leaf.grad());
        return seen;
      },
      {.fused_graphs = 0, .misses = 3});
}

// ---- dead_code, on a hand-built graph

class DeadCode : public testing::Test {
 protected:
  DeadCode() { graph_.origins = {"Node"}; }

  ValueId value() {
    graph_.values.push_back({.dtype = at::kFloat, .sizes = {graph_.symbols->integer(4)}, .strides = {1}});
    return {static_cast<uint32_t>(graph_.values.size() - 1)};
  }
  ValueId given() {
    graph_.inputs.push_back(value());
    return graph_.inputs.back();
  }
  ValueId neg(ValueId self, InstrKind kind = InstrKind::Op) {
    capture::Instr& instr = graph_.instrs.emplace_back();
    instr.kind = kind;
    const bool writes = kind == InstrKind::Mutate;
    instr.op = c10::Dispatcher::singleton().findSchemaOrThrow(writes ? "aten::neg_" : "aten::neg", "");
    instr.args = {writes ? Arg{} : Arg{Arg::Kind::Value, {}, {self}, {}}};
    if (writes) instr.base = self;
    instr.outputs = {value()};
    return instr.outputs[0];
  }
  void read(EventOrder order, EventUse use, ValueId value) {
    capture::Instr& instr = graph_.instrs.emplace_back();
    instr.kind = InstrKind::Event;
    instr.order = order;
    instr.use = use;
    instr.inputs = {value};
  }
  size_t gone() const { return codegen::dead_code(graph_).removed.size(); }

  Graph graph_;
};

TEST_F(DeadCode, AChainThatNobodyReads) {
  const ValueId x = given();
  neg(neg(neg(x), InstrKind::Mutate));
  read(EventOrder::Late, EventUse::Keep, neg(x));
  EXPECT_EQ(gone(), 3U);
  EXPECT_EQ(optimise(graph_.copy()).graph->instrs.size(), 2U);
}

TEST_F(DeadCode, NotWhatAHookIsShown) {
  read(EventOrder::Barrier, EventUse::Show, neg(given()));
  read(EventOrder::Late, EventUse::Show, neg(given()));
  read(EventOrder::Late, EventUse::Keep, neg(given()));
  EXPECT_EQ(gone(), 0U);
}

// Where a segment begins, nodes are looked at again, and may be left to themselves with what waits for them.
TEST_F(DeadCode, NotWhatWaitsWhereASegmentBegins) {
  const ValueId x = given(), before = neg(x);
  read(EventOrder::Here, EventUse::Wait, before);
  const ValueId inside = neg(x), across = neg(x);
  read(EventOrder::Here, EventUse::Wait, inside);
  read(EventOrder::Barrier, EventUse::Show, x);
  read(EventOrder::Here, EventUse::Wait, across);
  EXPECT_EQ(gone(), 1U);
  const auto optimised = optimise(graph_.copy());
  EXPECT_FALSE(optimised.replacement_of(inside).defined());
  EXPECT_EQ(optimised.replacement_of(before), before);
  EXPECT_EQ(optimised.replacement_of(across), across);
}

TORCH_LIBRARY(hindcast_passes_test, library) { library.def("touch(Tensor x) -> Tensor"); }

TEST_F(DeadCode, NotWhatAnotherLibraryDoes) {
  neg(given());
  EXPECT_EQ(gone(), 1U);
  graph_.instrs.edit_back().op = c10::Dispatcher::singleton().findSchemaOrThrow("hindcast_passes_test::touch", "");
  EXPECT_EQ(gone(), 0U);
}

TEST_F(DeadCode, NotWhatTheProgramReturns) {
  graph_.outputs = {neg(given())};
  EXPECT_EQ(gone(), 0U);
}

// ---- all of them

TEST(Passes, ReportWhatTheyDid) {
  LogCapture logs("graph");
  Options options = fused_options();
  const auto run = [&](const auto& backward) {
    hindcast::reset();
    logs.clear();
    const auto guard = hindcast::enable(options);
    backward();
  };
  run([] { leaf_of({4}).mul(2).tanh().sum().backward(); });
  for (const codegen::Pass& pass : codegen::passes())
    EXPECT_EQ(logs.count("after " + std::string(pass.name) + ": (unchanged)"), 1U) << logs.text();
  run([] { at::linear(at::randn({4, 3}), leaf_of({5, 3})).pow(2).tanh().sum().backward(); });
  EXPECT_EQ(logs.count("after simplify: "), 1U);
  EXPECT_EQ(logs.count("1 to the power of 1, 1 transposed or conjugated twice"), 1U) << logs.text();
  EXPECT_EQ(logs.count("after dead_code: "), 1U);
  EXPECT_EQ(logs.count("after common_subexpressions: (unchanged)"), 1U);
  EXPECT_GE(logs.count("torch.ops.aten.mm.default"), 2U);  // the graph after each of the two
}

TEST(Passes, KeepAGraphInWhichTheyFindNothing) {
  const auto graph = graph_of([] { leaf_of({4}).mul(2).tanh().sum().backward(); });
  const auto optimised = optimise(graph);
  EXPECT_EQ(optimised.graph, graph);
  EXPECT_TRUE(optimised.replaced.empty());
}

TEST(Passes, LeaveTheGraphThatCompilersGet) {
  const auto graph = graph_of([] { at::linear(at::randn({4, 3}), leaf_of({5, 3})).pow(2).tanh().sum().backward(); });
  const std::string before = graph->print();
  const auto optimised = optimise(graph);
  EXPECT_EQ(graph->print(), before);
  EXPECT_EQ(optimised.graph->values.size(), graph->values.size());
  EXPECT_EQ(optimised.graph->id, graph->id);
}

// Both graphs are kept: rows that a pass did not change are shared.
TEST(Passes, ShareTheRowsThatTheyLeave) {
  const auto graph = graph_of([] {
    at::Tensor x = leaf_of({4});
    for (int i = 0; i < 100; ++i) x = x.sin() * 2;
    (x.pow(2).mean().mean() + x.tanh().sum()).backward();
  });
  const auto optimised = optimise(graph).graph;
  ASSERT_NE(optimised, graph);
  size_t shared = 0;
  for (const capture::Instr& instr : optimised->instrs) {
    shared += std::any_of(graph->instrs.begin(), graph->instrs.end(), [&](const capture::Instr& own) { return &own == &instr; });
  }
  EXPECT_GT(shared * 10, optimised->instrs.size() * 9);
  EXPECT_LT(optimised->footprint(graph.get()) * 4, optimised->footprint());
}

TEST(Passes, VerifyComparesWhatTheyLeave) {
  hindcast::reset();
  Options options = fused_options();
  options.verify = true;
  const auto guard = hindcast::enable(options);
  for (const int64_t batch : {3, 5, 6}) {
    const auto x = at::randn({batch, 4}), w1 = leaf_of({5, 4}), w2 = leaf_of({5, 4}), b1 = leaf_of({5}), b2 = leaf_of({5});
    (at::linear(x, w1, b1) + at::linear(x, w2, b2)).pow(2).mean().mean().backward();
  }
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
  EXPECT_EQ(hindcast::stats().fused_graphs, 2U);
}

// The guard replays the graph that ran, and must know its values.
TEST(Passes, NanGuardFindsOriginsBehindThem) {
  hindcast::reset();
  Options options = fused_options();
  options.nan_guard = true;
  const auto guard = hindcast::enable(options);
  for (int step = 0; step < 3; ++step) {
    LogCapture logs("");
    const auto x = at::zeros({4}).requires_grad_(), b = leaf_of({4}), d = leaf_of({4});
    ((x.pow(2).sqrt() - b) + (x - d)).sum().backward();
    EXPECT_EQ(logs.count("1 of 3 gradients are not finite"), 1U) << logs.text();
    EXPECT_EQ(logs.count("they begin in aten::div"), step == 0 ? 1U : logs.count("they begin in aten::div")) << logs.text();
    EXPECT_EQ(logs.count("they begin in"), 1U) << logs.text();
  }
}

}  // namespace
}  // namespace hindcast::tests::passes_test
