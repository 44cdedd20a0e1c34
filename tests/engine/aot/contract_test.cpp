// A compiled function behaves like the function: it runs as often as without hindcast, in the same state, and its effects happen once.

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <hindcast/aot.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace hindcast::tests::contract_test {
namespace {

using Tensors = std::vector<at::Tensor>;

AotOptions exact() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  options.async = false;
  return options;
}

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }

// Gradients of result `of`, or the error's first words.
std::string gradients(const Tensors& results, size_t of, const Tensors& inputs, bool create_graph) {
  try {
    const auto found = torch::autograd::grad({results[of].sum()}, inputs, {}, true, create_graph, /*allow_unused=*/true);
    std::string text;
    for (const at::Tensor& gradient : found) {
      const c10::AutoGradMode no_grad(false);
      text += gradient.defined() ? c10::str(gradient.detach().to(at::kDouble)) : "none";
    }
    return text;
  } catch (const std::exception& error) {
    return std::string(error.what()).find("modified by an inplace operation") != std::string::npos ? "modified by an inplace operation"
                                                                                                   : error.what();
  }
}

// A parameter changes between forward and backward. Autograd uses the value that it saved, or reports the write.
TEST(Contract, ABackwardIsOfWhatTheForwardSaw) {
  using Function = std::function<Tensors(const at::Tensor&, const at::Tensor&)>;
  const std::vector<Function> functions = {
      [](const at::Tensor& x, const at::Tensor& p) {
        return Tensors{(x + p).sin(), (x - p).exp()};
      },
      [](const at::Tensor& x, const at::Tensor& p) {
        return Tensors{x * p, (x * p).exp()};
      },
  };
  for (size_t k = 0; k < functions.size(); ++k) {
    for (const bool create_graph : {false, true}) {
      const auto ours = torch::ones({4}).requires_grad_(), stock = torch::ones({4}).requires_grad_();
      const auto f = aot_function([&](const at::Tensor& x) { return functions[k](x, ours); }, exact());
      for (size_t call = 0; call < 6; ++call) {
        const auto x = torch::linspace(-1, 1, 4).requires_grad_();
        const Tensors given = f(x), expected = functions[k](x, stock);
        {
          const torch::NoGradGuard no_grad;
          ours.add_(1);
          stock.add_(1);
        }
        EXPECT_EQ(gradients(given, call % 2, {x, ours}, create_graph), gradients(expected, call % 2, {x, stock}, create_graph))
            << k << ", call " << call << ", create_graph " << create_graph;
      }
      if (k == 0) {
        EXPECT_EQ(f.stats().traces, 1U);
      }
    }
  }
}

struct Counting : torch::nn::Module {
  Counting() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  Tensors forward(const at::Tensor& x) {
    ++runs;
    const at::Tensor y = is_training() ? linear(x) * 3 : linear(x);
    return {y.sin(), y.exp()};
  }
  torch::nn::Linear linear{nullptr};
  int runs = 0;
};

TEST(Contract, AModulesModeAtItsBackwardIsNothingToIt) {
  const auto module = std::make_shared<Counting>();
  const auto net = aot_module(module, exact());
  for (size_t call = 0; call < 6; ++call) {
    const auto x = leaf({2, 4});
    module->train();
    const Tensors given = net(x), expected = module->forward(x);
    module->eval();
    const Tensors inputs = {x, module->linear->weight};
    EXPECT_EQ(gradients(given, call % 2, inputs, call % 3 == 0), gradients(expected, call % 2, inputs, call % 3 == 0)) << call;
  }
  EXPECT_EQ(module->runs, 7) << "once for the program";
}

// What a program cannot express ends the recording in the middle of the first call. The function does not run twice.
TEST(Contract, WhatIsNoProgramRunsOnce) {
  int runs = 0;
  at::Tensor kept;
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<std::pair<const char*, Function>> functions = {
      {"a mask", [&](const at::Tensor& x) { return ++runs, x.index({x > 0}).sum() * x; }},
      {"memory", [&](const at::Tensor& x) { return ++runs, x * x.detach().contiguous().data_ptr<float>()[0]; }},
      {"a kept tensor", [&](const at::Tensor& x) { return ++runs, (kept = x.sin()) * 2; }},
      {"a hook", [&](const at::Tensor& x) { return ++runs, x.register_hook([](const at::Tensor& g) { return g * 2; }), x.cos(); }},
      {"a number in its backward", [&](const at::Tensor& x) { return ++runs, x.prod(0, true) + x; }},
  };
  for (const auto& [name, function] : functions) {
    const auto f = aot_function(function, exact());
    for (int call = 0; call < 4; ++call) {
      const auto x = torch::tensor({1.5F, -2.F, 0.5F}).requires_grad_(), y = x.detach().clone().requires_grad_();
      runs = 0;
      const at::Tensor given = f(x);
      given.sum().backward();
      EXPECT_LE(runs, 1) << name << ", " << call;
      const at::Tensor expected = function(y);
      expected.sum().backward();
      EXPECT_TRUE(given.equal(expected)) << name << ", " << call;
      EXPECT_TRUE(x.grad().allclose(y.grad())) << name << ", " << call << x.grad() << y.grad();
    }
  }
}

TEST(Contract, KeptTensorsHaveTheirHistory) {
  const auto w = leaf({3});
  at::Tensor kept;
  const auto function = [&](const at::Tensor& x) {
    kept = (w * x).sin();
    return kept * 2;
  };
  const auto f = aot_function(function, exact());
  for (int call = 0; call < 5; ++call) {
    Tensors seen;
    const auto x = torch::randn({3});
    for (const bool compiled : {true, false}) {
      w.mutable_grad() = at::Tensor();
      const at::Tensor y = compiled ? f(x) : function(x);
      (y.sum() + kept.square().sum()).backward();
      EXPECT_NE(kept.data_ptr<float>(), nullptr);
      seen.push_back(w.grad());
    }
    EXPECT_TRUE(seen[0].equal(seen[1])) << call;
  }
}

int scale = 1;
struct Scaled : torch::autograd::Function<Scaled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list gradients) {
    return {gradients[0] * scale};
  }
};
struct Reversed : torch::autograd::Function<Reversed> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.view_as(x); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list gradients) {
    return {gradients[0] * -0.5};
  }
};

TEST(Contract, CustomFunctionsAreThemselves) {
  const auto scaled = aot_function([](const at::Tensor& x) { return Scaled::apply(x.sin()); }, exact());
  const auto reversed = aot_function([](const at::Tensor& x) { return Reversed::apply(x); }, exact());
  for (scale = 1; scale < 6; ++scale) {
    const auto x = torch::zeros({3}).requires_grad_();
    scaled(x).sum().backward();
    EXPECT_TRUE(x.grad().equal(torch::full({3}, static_cast<float>(scale)))) << x.grad();
    const auto y = torch::ones({2, 3}).requires_grad_();
    reversed(y).sum().backward();
    EXPECT_TRUE(y.grad().equal(torch::full({2, 3}, -0.5F))) << y.grad();
  }
}

TEST(Contract, GradientsThatAreNotDense) {
  const auto function = [](const at::Tensor& x) { return x.sin() * x; };
  const auto f = aot_function(function, exact());
  for (int call = 0; call < 4; ++call) {
    const auto x = leaf({4});
    const auto sparse = torch::eye(4)[call].to_sparse();
    const auto given = torch::autograd::grad({f(x)}, {x}, {sparse})[0], expected = torch::autograd::grad({function(x)}, {x}, {sparse})[0];
    EXPECT_TRUE(given.to_dense().allclose(expected.to_dense())) << call;
  }
}

struct Unwanted : torch::autograd::Function<Unwanted> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw std::runtime_error("nobody asks for this");
  }
};

// A result without a derivative is no error for a program whose gradients do not need it.
TEST(Contract, ADerivativeThatNobodyAsksForMayFail) {
  const auto custom = [](const at::Tensor& x) { return Tensors{x.sin(), Unwanted::apply(x)}; };
  const auto x = leaf({4});
  const auto f = aot_function(custom, exact());
  for (int call = 0; call < 4; ++call) {
    EXPECT_TRUE(torch::autograd::grad({f(x)[0].sum()}, {x})[0].equal(x.cos())) << call;
    EXPECT_THROW(torch::autograd::grad({f(x)[1].sum()}, {x}), std::runtime_error) << call;
  }
}

// Third derivatives, of results and of intermediates, with sizes that change.
TEST(Contract, DerivativesOfDerivatives) {
  const auto w = leaf({3, 3});
  const auto function = [&](const at::Tensor& x) { return (x.mm(w).tanh() * x.exp()).square(); };
  for (const auto& partition : {partition::standard, partition::min_cut}) {
    AotOptions options = exact();
    options.partition = partition;
    const auto f = aot_function(function, options);
    for (const int64_t rows : {2, 2, 3, 4, 4}) {
      const auto x = leaf({rows, 3});
      const auto third = [&](const at::Tensor& y) {
        const auto first = torch::autograd::grad({y.sum()}, {x, w}, {}, true, /*create_graph=*/true);
        const auto second = torch::autograd::grad({first[0].square().sum() + first[1].sin().sum()}, {x, w}, {}, true, true);
        return torch::autograd::grad({second[0].sum() + second[1].square().sum()}, {x, w});
      };
      const auto given = third(f(x)), expected = third(function(x));
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(given[i].allclose(expected[i], 1e-3, 1e-4)) << rows << ", " << i;
    }
  }
}

// Values that the backward saved and that get no gradient: an argument, a tensor from outside, a mask, an index that is a result.
TEST(Contract, DerivativesOfDerivativesBesideConstants) {
  const auto w = leaf({3, 3}), v = leaf({3, 3}), outside = torch::randn({3, 3});
  using Function = std::function<Tensors(const at::Tensor&)>;
  const std::vector<Function> functions = {
      [&](const at::Tensor& x) { return Tensors{x.mm(w).tanh().mm(v)}; },
      [&](const at::Tensor& x) { return Tensors{(x.mm(w).tanh() * (x > 0)).mm(v).sin() * outside}; },
      [&](const at::Tensor& x) {
        const auto [values, order] = x.mm(w).tanh().sort(1);
        return Tensors{values.mm(v).exp(), order};
      },
  };
  for (size_t k = 0; k < functions.size(); ++k) {
    for (const auto& partition : {partition::standard, partition::min_cut}) {
      AotOptions options = exact();
      options.partition = partition;
      const auto f = aot_function(functions[k], options);
      const auto x = torch::randn({3, 3});
      const auto second = [&](const Tensors& y) {
        const auto first = torch::autograd::grad({y[0].sum()}, {w, v}, {}, true, /*create_graph=*/true);
        return torch::autograd::grad({first[0].square().sum() + first[1].sin().sum()}, {w, v});
      };
      for (int call = 0; call < 4; ++call) {
        const auto given = second(f(x)), expected = second(functions[k](x));
        for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(given[i].allclose(expected[i], 1e-4, 1e-5)) << k << ", " << call << ", " << i;
      }
      EXPECT_GT(f.stats().hits, 0U) << k;
    }
  }
}

// The second derivative needs an argument that the first does not. Stock saves its own copy of what the first needs, and does not see the
// write.
TEST(Contract, AnArgumentThatIsWrittenToBetweenTwoBackwardsIsNoSilentError) {
  for (const bool needs_gradient : {false, true}) {
    const auto w = leaf({3});
    const auto function = [&](const at::Tensor& x) { return ((x + 1) * w).exp(); };
    const auto f = aot_function(function, exact());
    for (int call = 0; call < 4; ++call) {
      const auto x = torch::randn({3}).requires_grad_(needs_gradient);
      const auto second = [&](const auto& of, at::Tensor in) {
        const auto first = torch::autograd::grad({of(in).sum()}, {w}, {}, true, /*create_graph=*/true)[0];
        {
          const c10::NoGradGuard no_grad;
          in.add_(1);
        }
        return torch::autograd::grad({first.square().sum()}, {w})[0];
      };
      const auto expected = second(function, x.detach().clone().requires_grad_(needs_gradient));
      try {
        const auto given = second(f, x);
        EXPECT_TRUE(given.allclose(expected, 1e-4)) << call << given << expected;
      } catch (const std::exception& error) {
        EXPECT_NE(std::string(error.what()).find("modified by an inplace operation"), std::string::npos) << error.what();
      }
    }
  }
}

// As in an evaluation that records gradients. The second trace compiles the programs, with gradients of zeros.
TEST(Contract, CallsWithoutABackwardAreTracedTwiceAtMost) {
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  const auto w = leaf({4, 4}), b = leaf({4});
  struct Case {
    Function function;
    uint64_t traces;
  };
  const std::vector<Case> cases = {
      {[&](const at::Tensor& x) { return (x.mm(w) + b).tanh(); }, 2},
      {[&](const at::Tensor& x) { return torch::dropout((x * b).sin(), 0.5, /*train=*/true); }, 2},
      {[&](const at::Tensor& x) { return (x.add_(1) * b).exp(); }, 2},
      {[&](const at::Tensor& x) { return (x * b).view({-1}); }, 2},
  };
  for (const Case& each : cases) {
    AotOptions options = exact();
    options.fallback_random = true;
    int runs = 0;
    const auto f = aot_function([&](const at::Tensor& x) { return ++runs, each.function(x); }, options);
    const auto is_alike = [&](int call, bool with_backward) {
      const auto look = [&](const auto& function) {
        torch::manual_seed(call);
        const at::Tensor x = torch::randn({4, 4});
        const at::Tensor result = function(x);
        Tensors seen = {result.detach(), x, torch::rand({3})};
        if (with_backward) {
          for (const auto& gradient : torch::autograd::grad({result.sum()}, {b})) seen.push_back(gradient);
        }
        return seen;
      };
      const Tensors expected = look(each.function), given = look(f);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(given[i].equal(expected[i])) << call << ' ' << i;
    };
    for (int call = 0; call < 20; ++call) is_alike(call, /*with_backward=*/false);
    EXPECT_EQ(f.stats().traces, each.traces);
    EXPECT_EQ(f.stats().hits, 20 - each.traces);
    EXPECT_EQ(runs, static_cast<int>(each.traces));
    for (int call = 0; call < 10; ++call) is_alike(call, /*with_backward=*/true);
    EXPECT_EQ(f.stats().traces, each.traces);
    EXPECT_EQ(f.stats().eager, 0U);
  }
}

TEST(Contract, ABackwardOfTheSecondTraceIsRight) {
  const auto w = leaf({4});
  for (const bool create_graph : {false, true}) {
    const auto function = [&](const at::Tensor& x) { return (x * w).sin() * w; };
    const auto f = aot_function(function, exact());
    f(torch::ones({4}));
    for (int call = 0; call < 4; ++call) {
      const auto x = torch::randn({4});
      const auto gradient = [&](const auto& of) {
        auto first = torch::autograd::grad({of(x).sum()}, {w}, {}, true, create_graph)[0];
        return create_graph ? torch::autograd::grad({first.square().sum()}, {w})[0] : first;
      };
      EXPECT_TRUE(gradient(f).allclose(gradient(function), 1e-5, 1e-6)) << call;
    }
    EXPECT_LE(f.stats().traces, 2U);
  }
}

// A program that was traced while an op threw does not know for which sizes that op throws.
TEST(Contract, AnErrorThatTheFunctionCatchesIsNoProgram) {
  const auto function = [](const at::Tensor& x, const at::Tensor& y) {
    try {
      return x * y;
    } catch (const c10::Error&) {
      return x.sin();
    }
  };
  const auto f = aot_function(function, exact());
  for (const auto& [a, b] : std::vector<std::pair<int64_t, int64_t>>{{3, 4}, {5, 6}, {7, 7}, {4, 4}, {3, 4}, {6, 6}}) {
    const auto x = torch::randn({a}), y = torch::randn({b});
    EXPECT_TRUE(f(x, y).equal(function(x, y))) << a << " and " << b;
  }
}

// Like a checkpoint that recomputes.
TEST(Contract, AStateOfRandomNumbersThatIsSetIsNoProgram) {
  const auto function = [](const at::Tensor& x) {
    auto generator = at::detail::getDefaultCPUGenerator();
    const auto state = generator.get_state();
    const auto a = at::rand_like(x);
    generator.set_state(state);
    return a - at::rand_like(x) + x;
  };
  const auto f = aot_function(function, exact());
  for (int i = 0; i < 6; ++i) {
    const auto x = torch::randn({5});
    EXPECT_TRUE(f(x).equal(x)) << i;
  }
}

TEST(Contract, ATensorOfNumbersIsNewInEachCall) {
  const auto function = [](const at::Tensor& x) {
    auto factors = torch::tensor({1.F, 2.F, 3.F});
    factors[1] += 1;
    auto sum = torch::tensor(0.F);
    sum += (x * factors).sin().sum();
    return Tensors{sum, factors};
  };
  const auto f = aot_function(function, exact());
  for (int i = 0; i < 4; ++i) {
    const auto x = leaf({3});
    const Tensors seen = f(x), expected = function(x);
    EXPECT_TRUE(seen[0].equal(expected[0]) && seen[1].equal(expected[1])) << i;
    EXPECT_EQ(gradients(seen, 0, {x}, false), gradients(expected, 0, {x}, false)) << i;
    seen[1].zero_();
  }
  EXPECT_EQ(f.stats().hits, 3u);
}

TEST(Contract, SettingsThatTheFunctionChangesAreChangedInEachCall) {
  const auto leaves_changed = [](const at::Tensor& x) {
    auto y = x.sin();
    at::globalContext().setDeterministicAlgorithms(true, false);
    return y;
  };
  const auto restores = [](const at::Tensor& x) {
    torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    auto y = x * torch::ones({3});
    torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
    return y;
  };
  const auto f = aot_function(leaves_changed, exact());
  const auto g = aot_function(restores, exact());
  for (int i = 0; i < 3; ++i) {
    f(leaf({3}));
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms()) << i;
    at::globalContext().setDeterministicAlgorithms(false, false);
    EXPECT_EQ(g(leaf({3})).scalar_type(), at::kDouble) << i;
  }
}

// The program indexes out of range before it has compared the number.
TEST(Contract, AProgramForAnotherNumberDoesNotThrow) {
  const auto function = [](const at::Tensor& k) { return at::zeros({k.max().item<int64_t>() + 1}).index_put({k}, at::ones({k.size(0)})); };
  const auto f = aot_function(function, exact());
  for (const int64_t most : {2, 2, 5, 3, 2, 7, 2}) {
    const auto k = torch::tensor({int64_t{0}, int64_t{1}, most});
    EXPECT_TRUE(f(k).equal(function(k))) << most;
  }
}

// ATen's matmul reads sizes as numbers.
TEST(Contract, ProductsOfBatchesHaveOneProgramForAllSizes) {
  const at::Tensor w = torch::randn({4, 6}, at::kDouble).requires_grad_();
  const auto function = [w](const at::Tensor& x) {
    const at::Tensor y = x.matmul(w).unflatten(2, {2, 3}).select(2, 1);
    return y.matmul(y.transpose(1, 2)).softmax(-1).matmul(y);
  };
  const auto compiled = aot_function(function, exact());
  for (const int64_t rows : {5, 8, 3, 11, 6, 4, 9}) {
    const at::Tensor x = torch::randn({2, rows, 4}, at::kDouble).requires_grad_();
    const at::Tensor ours = compiled(x), stock = function(x);
    EXPECT_TRUE(ours.equal(stock)) << rows;
    const auto slopes = torch::autograd::grad({ours.sin().sum()}, {x, w}), expected = torch::autograd::grad({stock.sin().sum()}, {x, w});
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::allclose(slopes[i], expected[i], 1e-12, 1e-12)) << rows << ' ' << i;
  }
  EXPECT_EQ(compiled.stats().traces, 2u);
}

}  // namespace
}  // namespace hindcast::tests::contract_test
