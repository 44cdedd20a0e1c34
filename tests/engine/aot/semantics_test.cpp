// What autograd and C++ let a program do with a function, done with a compiled one.

#include <hindcast/aot.h>
#include <hindcast/graph.h>
#include <hindcast/hindcast.h>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <sstream>

namespace hindcast::tests::semantics_test {

struct Batch {
  at::Tensor x;
  std::vector<at::Tensor> weights;
  double scale = 1;
};
template <class B>
auto hindcast_members(B& batch, Batch*) {
  return std::tie(batch.x, batch.weights, batch.scale);
}

namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Tensors = std::vector<at::Tensor>;

AotOptions exact() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  return options;
}

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }

Tensors two_results(const at::Tensor& a, const at::Tensor& b) { return {a.sin() * 2, (a * b).exp()}; }

TEST(AotSemantics, EachSetOfGradientsHasItsProgram) {
  const auto f = aot_function(two_results, exact());
  const auto a = leaf({3, 4}), b = leaf({3, 4});
  const auto gradients = [&](auto&& function, int mask) {
    a.mutable_grad() = b.mutable_grad() = at::Tensor();
    const Tensors results = function(a, b);
    at::Tensor loss = torch::zeros({});
    for (int i = 0; i < 2; ++i) {
      if ((mask >> i & 1) != 0) loss = loss + results[i].square().sum();
    }
    loss.backward();
    return Tensors{a.grad(), b.grad()};
  };
  for (const int mask : {3, 3, 1, 1, 1, 2, 2, 3, 1}) {
    const Tensors given = gradients(f, mask), expected = gradients(two_results, mask);
    EXPECT_TRUE(given[0].equal(expected[0])) << mask;
    EXPECT_EQ(given[1].defined(), expected[1].defined()) << mask;
    if (given[1].defined()) EXPECT_TRUE(given[1].equal(expected[1])) << mask;
  }
  EXPECT_GT(f.stats().backwards, 0U);
}

TEST(AotSemantics, RandomFunctionsTakeZerosForGradientsThatDoNotFlow) {
  const auto function = [](const at::Tensor& a, const at::Tensor& b) { return Tensors{at::dropout(a, 0.5, true), a * b}; };
  const auto f = aot_function(function, exact());
  const auto a = leaf({3, 4}), b = leaf({3, 4});
  for (const int used : {0, 0, 1, 1, 0}) {
    const auto gradient = [&](auto&& call) {
      torch::manual_seed(4);
      return torch::autograd::grad({call(a, b)[used].sum()}, {a})[0];
    };
    EXPECT_TRUE(gradient(f).equal(gradient(function))) << used;
  }
  EXPECT_EQ(f.stats().hits, 4U);
}

TEST(AotSemantics, SecondDerivatives) {
  const auto function = [](const at::Tensor& a, const at::Tensor& b) { return (a * b).sin() * a.exp(); };
  const auto f = aot_function(function, exact());
  const auto second = [&](auto&& call) {
    torch::manual_seed(5);
    const auto x = leaf({3, 4}), b = leaf({3, 4});
    const auto a = x * 1.5;
    const auto first = torch::autograd::grad({call(a, b).square().sum()}, {x, b}, {}, true, /*create_graph=*/true);
    return torch::autograd::grad({(first[0] * first[1]).sum()}, {x, b});
  };
  for (int call = 0; call < 3; ++call) {
    const auto given = second(f), expected = second(function);
    EXPECT_TRUE(given[0].allclose(expected[0], 1e-5, 1e-6));
    EXPECT_TRUE(given[1].allclose(expected[1], 1e-5, 1e-6));
  }
}

// Of the sum of squares of the gradient of the sum of squares, always at the same matrix.
template <class Function>
at::Tensor second_derivative(Function&& function) {
  torch::manual_seed(5);
  const auto a = torch::rand({4, 4}, at::kDouble).requires_grad_();
  const auto first = torch::autograd::grad({function(a).square().sum()}, {a}, {}, true, /*create_graph=*/true)[0];
  return torch::autograd::grad({first.square().sum()}, {a})[0];
}

// So that a later call is a hit.
template <class Function>
void run_first_order_calls(Function&& function) {
  for (int call = 0; call < 3; ++call) {
    const auto a = torch::rand({4, 4}, at::kDouble).requires_grad_();
    function(a).square().sum().backward();
  }
}

// A second derivative needs a + rand, which is not saved and cannot be recomputed: the function runs eagerly.
TEST(AotSemantics, SecondDerivativesThroughRandomNumbersRunEagerly) {
  const auto f = aot_function([](const at::Tensor& a) { return (a + at::rand_like(a)).sin(); }, exact());
  for (int call = 0; call < 3; ++call) {
    const auto a = leaf({3, 4});
    const at::Tensor y = f(a);
    const auto first = torch::autograd::grad({y.sum()}, {a}, {}, true, true)[0];
    EXPECT_TRUE(first.square().allclose(1 - y.square(), 1e-4, 1e-5)) << call;
    const auto second = torch::autograd::grad({first.sum()}, {a})[0];
    EXPECT_TRUE(second.allclose(-y, 1e-4, 1e-5)) << call;
  }
}

TEST(AotSemantics, SecondDerivativesOfAProgramThatDrewAreRefused) {
  const auto f = aot_function([](const at::Tensor& a) { return (a + at::rand_like(a)).sin(); }, exact());
  for (int call = 0; call < 3; ++call) {
    const auto a = leaf({3, 4});
    f(a).sum().backward();
  }
  const auto a = leaf({3, 4});
  const at::Tensor y = f(a);
  const auto first = torch::autograd::grad({y.sum()}, {a}, {}, true, true)[0];
  EXPECT_TRUE(first.square().allclose(1 - y.square(), 1e-4, 1e-5));
  EXPECT_THAT([&] { torch::autograd::grad({first.sum()}, {a}, {}, true); },
              ThrowsMessage<std::exception>(HasSubstr("it draws random numbers")));
  const auto again = leaf({3, 4});
  const at::Tensor z = f(again);
  const auto slope = torch::autograd::grad({z.sum()}, {again}, {}, true, true)[0];
  EXPECT_TRUE(torch::autograd::grad({slope.sum()}, {again})[0].allclose(-z, 1e-4, 1e-5));
}

// Each of these has formulas that differ in grad mode.
TEST(AotSemantics, FormulasThatAskForTheGradMode) {
  const auto matrix = torch::eye(4, at::kDouble) * 3;
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> functions = {
      [](const at::Tensor& a) { return at::silu(a); },
      [](const at::Tensor& a) {
        return at::group_norm(a.view({4, 4}), 2);
      },
      [&](const at::Tensor& a) { return at::linalg_solve(a + matrix, a); },
  };
  for (const bool is_hit_first : {false, true}) {
    for (size_t k = 0; k < functions.size(); ++k) {
      const auto f = aot_function(functions[k], exact());
      if (is_hit_first) run_first_order_calls(f);
      for (int call = 0; call < 3; ++call)
        EXPECT_TRUE(second_derivative(f).allclose(second_derivative(functions[k]))) << k << ", " << is_hit_first << ", " << call;
      EXPECT_EQ(f.stats().eager, 0U) << k;
    }
  }
}

// A write in no-grad mode changes values and leaves the history as it was; `.data` has values without the history.
TEST(AotSemantics, SecondDerivativesOfValuesWithAnotherHistory) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> functions = {
      [](const at::Tensor& a) {
        const at::Tensor c = (a * a).clone();
        const torch::NoGradGuard no_grad;
        c.mul_(2);
        const c10::AutoGradMode grad(true);
        return (a * c).exp();
      },
      [](const at::Tensor& a) {
        const at::Tensor c = a.sin();
        return (a * c.variable_data()).exp();
      },
      [](const at::Tensor& a) { return (a * a.sin().detach()).exp(); },
      [](const at::Tensor& a) {
        at::Tensor c = a.clone();
        const at::Tensor row = c[0];
        const torch::NoGradGuard no_grad;
        c.mul_(2);
        const c10::AutoGradMode grad(true);
        return (row * c).exp();
      },
  };
  for (const bool is_hit_first : {false, true}) {
    for (size_t k = 0; k < functions.size(); ++k) {
      if (is_hit_first && k == 1) continue;  // .data: an error, as for random numbers
      const auto f = aot_function(functions[k], exact());
      if (is_hit_first) run_first_order_calls(f);
      for (int call = 0; call < 3; ++call)
        EXPECT_TRUE(second_derivative(f).allclose(second_derivative(functions[k]))) << k << ", " << is_hit_first << ", " << call;
    }
  }
}

// The backward was recorded with contiguous gradients, and its reshapes contain their strides as constants.
TEST(AotSemantics, SecondDerivativesOfTransposedGradients) {
  const auto function = [](const at::Tensor& a) { return (a.view({2, 2, 6}) * 2).sin().matmul(at::ones({6, 5})).exp(); };
  for (const bool is_hit_first : {false, true}) {
    const auto f = aot_function(function, exact());
    const auto second = [&](auto&& called) {
      torch::manual_seed(5);
      const auto a = leaf({24}), other = torch::randn({5, 2, 2});
      const at::Tensor y = called(a);
      const auto first = torch::autograd::grad({y}, {a}, {other.permute({2, 1, 0})}, true, /*create_graph=*/true)[0];
      return std::pair(first.detach(), torch::autograd::grad({first.square().sum()}, {a})[0]);
    };
    for (int call = 0; is_hit_first && call < 3; ++call) f(leaf({24})).sum().backward();
    for (int call = 0; call < 3; ++call) {
      const auto given = second(f), expected = second(function);
      EXPECT_TRUE(given.first.allclose(expected.first, 1e-4, 1e-5)) << is_hit_first << ", " << call;
      EXPECT_TRUE(given.second.allclose(expected.second, 1e-4, 1e-5)) << is_hit_first << ", " << call;
    }
  }
}

// Argument b is not saved by autograd's formulas, and changes before its backward.
TEST(AotSemantics, SecondDerivativesBehindAChangedArgument) {
  const auto f = aot_function([](const at::Tensor& a, const at::Tensor& b) { return (a + b).sin(); }, exact());
  for (int call = 0; call < 3; ++call) {
    const auto a = leaf({4}), b = torch::ones({4});
    const at::Tensor y = f(a, b), sum = (a + b).detach();
    b.add_(1);
    const auto first = torch::autograd::grad({y.sum()}, {a}, {}, true, /*create_graph=*/true)[0];
    EXPECT_TRUE(first.allclose(sum.cos())) << call;
    if (call == 1) {  // from a program
      EXPECT_THAT([&] { torch::autograd::grad({first.sum()}, {a}, {}, true); },
                  ThrowsMessage<std::exception>(HasSubstr("has been modified by an inplace operation")));
    } else {
      EXPECT_TRUE(torch::autograd::grad({first.sum()}, {a})[0].allclose(-sum.sin())) << call;
    }
  }
}

TEST(AotSemantics, RetainGraph) {
  const auto f = aot_function([](const at::Tensor& a) { return a.sin().exp(); }, exact());
  const auto a = leaf({3, 4});
  for (int call = 0; call < 3; ++call) {
    const auto loss = f(a).sum();
    const auto expected = torch::autograd::grad({a.sin().exp().sum()}, {a})[0];
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(torch::autograd::grad({loss}, {a}, {}, true)[0].equal(expected));
    EXPECT_TRUE(torch::autograd::grad({loss}, {a})[0].equal(expected));
    EXPECT_THAT([&] { torch::autograd::grad({loss}, {a}); }, ThrowsMessage<std::exception>(HasSubstr("a second time")));
  }
}

TEST(AotSemantics, SeveralForwardsBeforeABackward) {
  const auto f = aot_function([](const at::Tensor& a) { return a.sin().exp(); }, exact());
  const auto a = leaf({3, 4});
  for (int round = 0; round < 2; ++round) {
    const auto x = f(a), y = f(a * 2), z = f(a * 3);
    const auto expected = torch::autograd::grad({(a.sin().exp() + (a * 2).sin().exp() * (a * 3).sin().exp()).sum()}, {a})[0];
    EXPECT_TRUE(torch::autograd::grad({(x + y * z).sum()}, {a})[0].allclose(expected, 1e-6));
  }
}

TEST(AotSemantics, AForwardWhoseBackwardNeverComesIsSeldomTraced) {
  const auto f = aot_function([](const at::Tensor& a) { return a.sin().exp(); });
  const auto a = leaf({3, 4});
  for (int call = 0; call < 100; ++call) EXPECT_TRUE(f(a).equal(a.sin().exp()));
  EXPECT_LE(f.stats().traces, 9U);
  f(a).sum().backward();
  f(a).sum().backward();
  EXPECT_EQ(f.stats().calls, 102U);
}

TEST(AotSemantics, ATensorFromOutsideWithAHistoryCountsOnce) {
  const auto p = leaf({4}), x = leaf({3, 4});
  for (int call = 0; call < 3; ++call) {
    const auto m = p * 2;
    const auto f = aot_function([&](const at::Tensor& a) { return (a * m).sin(); }, exact());
    const auto loss = f(x).sum() + m.sum();
    const auto given = torch::autograd::grad({loss}, {p, x});
    const auto n = p * 2;
    const auto expected = torch::autograd::grad({(x * n).sin().sum() + n.sum()}, {p, x});
    EXPECT_TRUE(given[0].allclose(expected[0], 1e-6));
    EXPECT_TRUE(given[1].equal(expected[1]));
  }
}

TEST(AotSemantics, ParametersFromOutsideTrain) {
  const auto w = leaf({4}), expected = w.detach().clone().requires_grad_();
  const auto x = torch::randn({3, 4});
  const auto f = aot_function([&](const at::Tensor& a) { return (a * w).sin(); }, exact());
  for (int step = 0; step < 4; ++step) {
    w.mutable_grad() = expected.mutable_grad() = at::Tensor();
    f(x).sum().backward();
    (x * expected).sin().sum().backward();
    const torch::NoGradGuard no_grad;
    w.sub_(w.grad(), 0.1);
    expected.sub_(expected.grad(), 0.1);
    EXPECT_TRUE(w.equal(expected)) << step;
  }
  EXPECT_EQ(f.stats().hits, 3U);
}

TEST(AotSemantics, AWriteToALeafIsTheErrorThatItIs) {
  const auto f = aot_function([](const at::Tensor& a) { return a.mul_(2); });
  const auto a = leaf({3});
  EXPECT_THAT([&] { f(a); },
              ThrowsMessage<std::exception>(HasSubstr("a leaf Variable that requires grad is being used in an in-place operation")));
}

TEST(AotSemantics, ASavedResultThatIsWrittenToIsAnError) {
  const auto f = aot_function([](const at::Tensor& a) { return a.exp(); }, exact());
  const auto a = leaf({3});
  f(a).sum().backward();
  const auto y = f(a);
  y.mul_(2);
  EXPECT_THAT([&] { y.sum().backward(); }, ThrowsMessage<std::exception>(HasSubstr("modified by an inplace operation")));
}

TEST(AotSemantics, WhatTheTracedCallSavedMayNotBeWrittenTo) {
  const auto expect_error = [](const at::Tensor& loss) {
    EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<std::exception>(HasSubstr("modified by an inplace operation")));
  };
  const auto write = [](const at::Tensor& tensor) {
    const torch::NoGradGuard no_grad;
    tensor.mul_(3);
  };
  const auto exp = aot_function([](const at::Tensor& a) { return a.exp(); }, exact());
  const auto y = exp(leaf({3}));
  write(y);
  expect_error(y.sum());
  const auto product = aot_function([](const at::Tensor& a, const at::Tensor& b) { return (a * b).tanh(); }, exact());
  const auto a = leaf({3}), b = leaf({3});
  const auto z = product(a, b);
  write(a);
  expect_error(z.sum());
  const auto sum = aot_function([](const at::Tensor& c) { return c + 1; }, exact());
  const auto c = leaf({3});
  const auto w = sum(c);
  write(c);
  w.sum().backward();  // nobody saved it
  EXPECT_TRUE(c.grad().equal(torch::ones({3})));
}

// Like NumPy and DLPack: two storages share one memory.
TEST(AotSemantics, AWriteToMemoryThatAnotherStorageLends) {
  const auto function = [](at::Tensor x, const at::Tensor& y) {
    x.add_(1);
    return x * y;
  };
  const auto f = aot_function(function, exact());
  for (int call = 0; call < 3; ++call) {
    const bool is_lent = call != 1;
    const auto x = torch::arange(4., torch::kFloat), other = torch::arange(4., torch::kFloat);
    const auto y = is_lent ? torch::from_blob(x.data_ptr(), {4}) : other.clone();
    EXPECT_TRUE(f(x, y).equal(is_lent ? (other + 1).square() : (other + 1) * other)) << call;
  }
}

// The compilers are given the sizes of the call.
TEST(AotSemantics, CompilersOfSegmentsAndOfProgramsServeOtherSizes) {
  const auto function = [](const at::Tensor& x, const at::Tensor& w) {
    return (x.narrow(0, 0, x.size(0) - 1).view({-1}) * w).cumsum(0).sum() * x;
  };
  std::ostringstream text;
  AotOptions by_segment, by_program;
  by_segment.fw_compiler = by_segment.bw_compiler = compilers::print(text);
  by_program.fw_compiler = by_program.bw_compiler = [](const std::shared_ptr<const Graph>& graph, const Tensors&) -> ProgramFunction {
    return [graph](const Tensors& inputs) { return run_program(*graph, inputs); };
  };
  for (const AotOptions& options : {by_segment, by_program}) {
    const auto f = aot_function(function, options);
    const auto w = leaf({1});
    for (const int64_t rows : {3, 6, 9, 7, 4, 8}) {
      const auto x = torch::randn({rows, 2});
      EXPECT_TRUE(torch::autograd::grad({f(x, w).sum()}, {w})[0].equal(torch::autograd::grad({function(x, w).sum()}, {w})[0])) << rows;
    }
    EXPECT_GT(f.stats().hits + f.stats().traces, 5U);
  }
}

TEST(AotSemantics, WritesThatReadWhatTheyWrite) {
  const auto function = [](at::Tensor x) {
    x.mul_(x).add_(x);
    x.addcmul_(x, x);
    return x * 2;
  };
  const auto f = aot_function(function, exact());
  for (int call = 0; call < 3; ++call) {
    const auto x = torch::randn({4}), expected = x.clone();
    EXPECT_TRUE(f(x).equal(function(expected)));
    EXPECT_TRUE(x.equal(expected));
  }
  EXPECT_EQ(f.stats().hits, 2U);
}

TEST(AotSemantics, AWriteThroughADetachedArgumentHasItsHistory) {
  const auto function = [](const at::Tensor& x, const at::Tensor& w) { return x.detach().add_(w); };
  const auto f = aot_function(function, exact());
  for (int call = 0; call < 3; ++call) {
    const auto w = leaf({3});
    const auto y = f(torch::zeros({3}), w);
    ASSERT_TRUE(y.requires_grad());
    y.sum().backward();
    EXPECT_TRUE(w.grad().equal(torch::ones({3})));
  }
}

TEST(AotSemantics, ABackwardInTheFunctionWritesToItsArgumentsGradients) {
  const auto function = [](const at::Tensor& x) {
    const auto loss = (x * x).sum();
    loss.backward();
    return loss.detach();
  };
  const auto f = aot_function(function, exact());
  const auto x = torch::ones({3}).requires_grad_();
  for (int call = 1; call <= 3; ++call) {
    f(x);
    EXPECT_TRUE(x.grad().equal(torch::full({3}, 2. * call))) << call;
  }
}

TEST(AotSemantics, AnotherSetOfGradientsAtAnotherSize) {
  const auto function = [](const at::Tensor& x) { return Tensors{x.narrow(0, 0, x.size(0) - 1).pow(2).sum() * x, x.cos()}; };
  const auto f = aot_function(function, exact());
  int call = 0;
  for (const int64_t n : {2, 3, 5, 5, 4, 6, 4}) {
    const auto x = leaf({n, n});
    const auto loss = [&](auto&& fn) {
      const Tensors results = fn(x);
      return call < 3 ? results[0].sum() + results[1].sum() : results[0].sum();
    };
    EXPECT_TRUE(torch::autograd::grad({loss(f)}, {x})[0].allclose(torch::autograd::grad({loss(function)}, {x})[0], 1e-5, 1e-6)) << call;
    ++call;
  }
}

TEST(AotSemantics, NumbersOfTheFunctionsOwnAreComparedInEachCall) {
  const auto function = [](const at::Tensor& a) { return a.sum().item<float>() > 0 ? a.exp() : a.sin(); };
  const auto f = aot_function(function, exact());
  const auto a = torch::randn({3, 4});
  const auto same = torch::ones({3, 4}).requires_grad_(), other = -same.detach();
  for (int call = 0; call < 3; ++call) {
    const auto loss = f(same).sum();
    EXPECT_TRUE(loss.equal(same.exp().sum()));
    loss.backward();
    EXPECT_TRUE(f(other.detach().clone().requires_grad_()).equal(other.sin()));
  }
  EXPECT_GT(f.stats().numbers_differed, 0U);
  EXPECT_GT(f.stats().hits, 0U);
}

// As in a batch norm whose momentum is 1 / the number of batches.
TEST(AotSemantics, NumbersThatAreOthersInEachCallAreComparedSomeTimes) {
  const auto function = [](const at::Tensor& a) { return a * a.sum().item<float>(); };
  const auto f = aot_function(function, exact());
  for (int call = 0; call < 30; ++call) {
    const auto a = torch::full({3, 4}, static_cast<double>(call), at::kFloat).requires_grad_();
    EXPECT_TRUE(torch::autograd::grad({f(a).sum()}, {a})[0].equal(torch::autograd::grad({function(a).sum()}, {a})[0]));
  }
  EXPECT_EQ(f.stats().numbers_differed, 8U);
}

TEST(AotSemantics, CheckEveryFindsANumberThatALambdaReads) {
  double scale = 2;
  AotOptions options = exact();
  options.check_every = 3;
  const auto f = aot_function([&](const at::Tensor& a) { return a * scale; }, options);
  const auto a = torch::ones({3});
  for (int call = 0; call < 4; ++call) f(a);
  scale = 3;
  f(a);
  EXPECT_THAT([&] { f(a); }, ThrowsMessage<std::runtime_error>(HasSubstr("of result 0, element 0 is 2, expected 3")));
}

TEST(AotSemantics, WithoutFallbackWhatCannotBeTracedThrows) {
  AotOptions options;
  options.fallback = false;
  const auto f = aot_function([](const at::Tensor& a) { return std::get<0>(at::unique_consecutive(a)); }, options);
  EXPECT_THAT([&] { f(torch::ones({3})); },
              ThrowsMessage<std::runtime_error>(HasSubstr("aten::unique_consecutive: result depends on the data")));
}

TEST(AotSemantics, WhatCannotBeTracedHasItsEffectsOnce) {
  const auto f = aot_function([](at::Tensor a) {
    a.add_(1);
    const auto drawn = torch::rand({2});
    return Tensors{std::get<0>(at::unique_consecutive(a)), drawn};
  });
  for (int call = 0; call < 2; ++call) {
    const auto a = torch::zeros({3});
    torch::manual_seed(2);
    const auto results = f(a);
    EXPECT_TRUE(a.equal(torch::ones({3})));
    EXPECT_EQ(results[0].size(0), 1);
    torch::manual_seed(2);
    EXPECT_TRUE(results[1].equal(torch::rand({2})));
  }
  EXPECT_EQ(f.stats().eager, 2U);
}

TEST(AotSemantics, AFunctionThatThrowsInItsFirstCall) {
  bool throws = true;
  const auto f = aot_function(
      [&](const at::Tensor& a) {
        const auto b = a.sin();
        if (throws) throw std::out_of_range("mine");
        return b.exp();
      },
      exact());
  const auto a = leaf({3});
  EXPECT_THROW(f(a), std::out_of_range);
  throws = false;
  for (int call = 0; call < 3; ++call) {
    const auto result = f(a);
    EXPECT_TRUE(result.equal(a.sin().exp()));
    result.sum().backward();
  }
  EXPECT_EQ(f.stats().hits, 2U);
}

TEST(AotSemantics, WhatAFunctionWritesBeforeItThrowsIsWritten) {
  const at::Tensor count = torch::zeros({}), noise = torch::ones({64});
  const auto function = [&](const at::Tensor& table, const at::Tensor& rows) {
    count.add_(1);
    const at::Tensor drawn = at::dropout(noise, 0.5, true);
    return (table.index_select(0, rows) * count * drawn.sum()).sum();
  };
  const auto seen = [&](auto&& called) {
    torch::manual_seed(0);
    count.zero_();
    Tensors all;
    const auto table = leaf({4, 2});
    for (int call = 0; call < 6; ++call) {
      const auto rows = torch::tensor({0, call % 2 == 1 ? 7 : 3});
      try {
        called(table, rows).backward();
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("out of range"));
      }
      all.insert(all.end(), {count.clone(), table.grad().clone(), torch::rand({1})});
    }
    return all;
  };
  AotOptions options = exact();
  options.fallback_random = true;
  const auto f = aot_function(function, options);
  const Tensors given = seen(f), expected = seen(function);
  EXPECT_GT(f.stats().hits, 0U);
  for (size_t i = 0; i < given.size(); ++i) EXPECT_TRUE(given[i].equal(expected[i])) << i << given[i] << expected[i];
}

TEST(AotSemantics, AFunctionMayCatchAnErrorThatItsTraceDidNotMeet) {
  const auto function = [](const at::Tensor& table, const at::Tensor& rows) {
    try {
      return table.index_select(0, rows) * 2;
    } catch (const c10::Error&) {
      return table * 3;
    }
  };
  const auto f = aot_function(function, exact());
  for (int call = 0; call < 6; ++call) {
    const auto table = leaf({4, 2});
    const auto rows = torch::tensor({0, call % 3 == 2 ? 7 : 3});
    const at::Tensor given = f(table, rows), expected = function(table, rows);
    EXPECT_TRUE(given.equal(expected)) << call;
    EXPECT_TRUE(torch::autograd::grad({given.sum()}, {table})[0].equal(torch::autograd::grad({expected.sum()}, {table})[0])) << call;
  }
  EXPECT_GT(f.stats().hits, 0U);
}

TEST(AotSemantics, AnErrorOfACompilersOwnIsTheCallersToSee) {
  const at::Tensor count = torch::zeros({});
  AotOptions options;
  bool throws = false;
  options.fw_compiler = [&](const std::shared_ptr<const Graph>& program, const Tensors&) -> ProgramFunction {
    return [&throws, program](const Tensors& inputs) {
      if (throws) throw std::runtime_error("of the compiler");
      return run_program(*program, inputs);
    };
  };
  const auto f = aot_function(
      [&](const at::Tensor& x) {
        count.add_(1);
        return x * 2;
      },
      options);
  const at::Tensor x = torch::ones({2});
  for (int call = 0; call < 3; ++call) f(x);
  throws = true;
  EXPECT_THAT([&] { f(x); }, ThrowsMessage<std::runtime_error>(HasSubstr("of the compiler")));
}

TEST(AotSemantics, ArgumentsAreStructsVectorsAndNumbers) {
  const auto function = [](const Batch& batch, bool twice, std::optional<at::Tensor> more) {
    auto y = batch.x * batch.scale;
    for (const at::Tensor& weight : batch.weights) y = (y * weight).sin();
    if (more) y = y + *more;
    return std::make_pair(twice ? y * 2 : y, std::map<std::string, at::Tensor>{{"sum", y.sum()}});
  };
  const auto f = aot_function(function, exact());
  Batch batch{leaf({3, 4}), {leaf({4}), leaf({4})}, 0.5};
  for (const bool twice : {true, false, true, false}) {
    for (const double scale : {0.5, 2.0}) {
      batch.scale = scale;
      for (const bool has_more : {true, false}) {
        const std::optional<at::Tensor> more = has_more ? std::optional(torch::ones({4})) : std::nullopt;
        const auto given = f(batch, twice, more);
        const auto expected = function(batch, twice, more);
        EXPECT_TRUE(given.first.equal(expected.first));
        EXPECT_TRUE(given.second.at("sum").equal(expected.second.at("sum")));
        given.first.sum().backward();
      }
    }
  }
  EXPECT_EQ(f.stats().hits, 8U);
}

TEST(AotSemantics, CompiledFunctionsInCompiledFunctions) {
  const auto inner = aot_function([](const at::Tensor& a) { return a.sin(); }, exact());
  const auto outer = aot_function([&](const at::Tensor& a) { return inner(a) * inner(a * 2); }, exact());
  const auto a = leaf({3});
  for (int call = 0; call < 3; ++call) {
    const auto given = torch::autograd::grad({outer(a).sum()}, {a})[0];
    EXPECT_TRUE(given.equal(torch::autograd::grad({(a.sin() * (a * 2).sin()).sum()}, {a})[0]));
  }
  EXPECT_EQ(outer.stats().hits, 2U);
  EXPECT_EQ(inner.stats().hits, 0U);
}

TEST(AotSemantics, HooksOnInputsAndResults) {
  const auto f = aot_function([](const at::Tensor& a) { return a.sin(); }, exact());
  for (int call = 0; call < 3; ++call) {
    const auto a = leaf({3});
    const auto x = a * 2;
    std::string order;
    x.register_hook([&](const at::Tensor& gradient) {
      order += "x";
      return gradient * 2;
    });
    const auto y = f(x);
    y.register_hook([&](const at::Tensor& gradient) {
      order += "y";
      return gradient * 3;
    });
    y.sum().backward();
    EXPECT_EQ(order, "yx");
    EXPECT_TRUE(a.grad().allclose((a * 2).cos() * 12));
  }
}

TEST(AotSemantics, AHookInTheFunctionLeavesItAsItIs) {
  int calls = 0;
  const auto f = aot_function([&](const at::Tensor& a) {
    const auto y = a.sin();
    if (y.requires_grad()) y.register_hook([&](const at::Tensor&) { ++calls; });
    return y.exp();
  });
  const auto a = leaf({3});
  for (int call = 0; call < 3; ++call) f(a).sum().backward();
  EXPECT_EQ(calls, 3);
}

// A recurrent state in a variable: each call reads what the previous one left there.
TEST(AotSemantics, AFunctionThatKeepsATensorRunsAsItIs) {
  for (const bool needs_gradient : {false, true}) {
    at::Tensor state = torch::zeros({3}), expected_state = state.clone();
    const auto step = [](const at::Tensor& a, at::Tensor& kept) {
      kept = (kept + a).tanh().detach();
      return kept * a;
    };
    const auto f = aot_function([&](const at::Tensor& a) { return step(a, state); }, exact());
    for (int call = 0; call < 8; ++call) {
      const auto a = torch::full({3}, call + 1.).requires_grad_(needs_gradient);
      const auto given = f(a), expected = step(a, expected_state);
      EXPECT_TRUE(given.equal(expected)) << call;
      if (needs_gradient) {
        EXPECT_TRUE(torch::autograd::grad({given.sum()}, {a})[0].equal(torch::autograd::grad({expected.sum()}, {a})[0])) << call;
      }
    }
    EXPECT_EQ(f.stats().hits, 0U);
  }
}

TEST(AotSemantics, AMaskThatTheFirstCallMakesIsFoundByLaterOnes) {
  at::Tensor mask;
  const auto f = aot_function(
      [&](const at::Tensor& a) {
        if (!mask.defined()) mask = torch::ones({3, 3}).tril();
        return a * mask;
      },
      exact());
  for (int call = 0; call < 5; ++call) {
    const auto a = leaf({3, 3});
    const auto given = f(a);
    EXPECT_TRUE(given.equal(a * torch::ones({3, 3}).tril()));
    given.sum().backward();
  }
  EXPECT_EQ(f.stats().hits, 3U);
}

TEST(AotSemantics, NumbersThatAreOthersInEachCallAreNotTracedForEver) {
  const auto f = aot_function([](const at::Tensor& a, int64_t step) { return a * step; }, exact());
  const auto a = torch::ones({3});
  for (int64_t step = 0; step < 1000; ++step) EXPECT_TRUE(f(a, step).equal(a * step));
  EXPECT_LT(f.stats().traces, 50U);
}

TEST(AotSemantics, ABackwardInTheFunctionIsAPartOfIt) {
  const auto function = [](const at::Tensor& a) {
    const auto y = a.sin().sum();
    return torch::autograd::grad({y}, {a}, {}, true, /*create_graph=*/true)[0] * a;
  };
  const auto f = aot_function(function, exact());
  Options engine;
  engine.compiler = compilers::eager();
  for (int call = 0; call < 4; ++call) {
    const auto a = leaf({3});
    const auto guard = enable(engine);
    EXPECT_TRUE(torch::autograd::grad({f(a).sum()}, {a})[0].allclose(torch::autograd::grad({function(a).sum()}, {a})[0], 1e-6));
  }
  EXPECT_EQ(f.stats().hits, 3U);
}

TEST(AotSemantics, InferenceAndNoGrad) {
  const auto f = aot_function([](const at::Tensor& a) { return a.sin().exp(); }, exact());
  const auto a = leaf({3});
  for (int call = 0; call < 3; ++call) {
    const torch::NoGradGuard no_grad;
    const auto y = f(a);
    EXPECT_FALSE(y.requires_grad());
    EXPECT_TRUE(y.equal(a.sin().exp()));
  }
  for (int call = 0; call < 3; ++call) {
    const c10::InferenceMode inference;
    const auto y = f(a);
    EXPECT_TRUE(y.is_inference());
    EXPECT_TRUE(y.equal(a.sin().exp()));
  }
  EXPECT_EQ(f.stats().hits, 4U);
}

// Views of normal tensors are normal tensors in inference mode too.
TEST(AotSemantics, InferenceModeAndTensorsFromOutside) {
  const auto weight = leaf({4, 16}), buffer = torch::randn({4, 16});
  for (const at::Tensor& outside : {weight, buffer}) {
    for (const bool trains_first : {false, true}) {
      const auto linear = [&](const at::Tensor& x) { return x.mm(outside.t()).relu(); };
      const auto transposed = [&](const at::Tensor& x) { return std::tuple(outside.t(), x.t(), x.detach(), (x + 1).t()); };
      const auto f = aot_function(linear, exact());
      const auto g = aot_function(transposed, exact());
      const auto x = leaf({3, 16});
      for (int call = 0; trains_first && call < 3; ++call) f(x).sum().backward();
      for (int call = 0; call < 3; ++call) {
        const c10::InferenceMode inference;
        for (const at::Tensor& input : {x, torch::randn({3, 16})}) {
          const at::Tensor y = f(input);
          EXPECT_TRUE(y.equal(linear(input)));
          EXPECT_TRUE(y.is_inference());
          const auto [a, b, c, d] = g(input);
          const auto [a_stock, b_stock, c_stock, d_stock] = transposed(input);
          const auto expect_same = [&](const at::Tensor& ours, const at::Tensor& stock) {
            EXPECT_TRUE(ours.equal(stock));
            EXPECT_EQ(ours.is_inference(), stock.is_inference()) << call;
          };
          expect_same(a, a_stock);
          expect_same(b, b_stock);
          expect_same(c, c_stock);
          expect_same(d, d_stock);
        }
      }
    }
  }
}

TEST(AotSemantics, Autocast) {
  const auto function = [](const at::Tensor& a, const at::Tensor& w) { return at::linear(a, w).exp(); };
  const auto f = aot_function(function, exact());
  const auto a = leaf({3, 4}), w = leaf({5, 4});
  for (int call = 0; call < 4; ++call) {
    const bool is_cast = call % 2 == 1;
    at::autocast::set_autocast_enabled(at::kCPU, is_cast);
    const auto given = f(a, w), expected = function(a, w);
    EXPECT_EQ(given.scalar_type(), is_cast ? at::kBFloat16 : at::kFloat);
    EXPECT_TRUE(given.equal(expected));
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_TRUE(torch::autograd::grad({given.sum()}, {w})[0].equal(torch::autograd::grad({expected.sum()}, {w})[0]));
  }
}

TEST(AotSemantics, SizesBecomeDynamicWithTheSecond) {
  const auto function = [](const at::Tensor& a, const at::Tensor& w) { return at::relu(at::linear(a, w)).sum(0) / 3; };
  const auto f = aot_function(function, exact());
  const auto w = leaf({5, 4});
  for (const int64_t rows : {3, 7, 11, 2, 64, 1}) {
    const auto a = torch::randn({rows, 4});
    EXPECT_TRUE(torch::autograd::grad({f(a, w).sum()}, {w})[0].equal(torch::autograd::grad({function(a, w).sum()}, {w})[0])) << rows;
  }
  EXPECT_GE(f.stats().hits, 3U);
}

// C++ says x.size(0), which is a plain number.
TEST(AotSemantics, NumbersOfSizesAreFitted) {
  const auto w = leaf({8, 8});
  const auto function = [](const at::Tensor& x, const at::Tensor& weight) {
    const auto b = x.size(0), t = x.size(1);
    const auto heads = x.matmul(weight).view({b, t, 2, 4}).transpose(1, 2);
    const auto mixed = heads.matmul(heads.transpose(-2, -1)) / static_cast<double>(4);
    return (mixed.softmax(-1).matmul(heads)).transpose(1, 2).reshape({b * t, 8}) + torch::ones({b * t, 8});
  };
  const auto f = aot_function(function, exact());
  for (const int64_t rows : {3, 5, 12, 9, 4, 7, 6, 13, 8, 13}) {  // 13 is outside of the sizes compared so far
    const auto x = torch::randn({rows, rows + 2, 8});
    const auto given = f(x, w), expected = function(x, w);
    EXPECT_TRUE(given.equal(expected)) << rows;
    EXPECT_TRUE(torch::autograd::grad({given.square().sum()}, {w})[0].equal(torch::autograd::grad({expected.square().sum()}, {w})[0]))
        << rows;
  }
  EXPECT_EQ(f.stats().traces, 9U) << "each size is proved once: the function has it as a plain number";
  EXPECT_EQ(f.stats().hits, 1U);
  EXPECT_EQ(f.core().programs().size(), 3U) << "one for all sizes, beside those of the first two";
  for (const int64_t rows : {3, 5, 12, 9, 4, 7, 6, 13, 8}) f(torch::randn({rows, rows + 2, 8}), w);
  EXPECT_EQ(f.stats().hits, 10U);
}

// -1 is inferred next to a plain number: in the second trace, which has a symbol for the size, it becomes an expression that is right only
// there.
TEST(AotSemantics, ADimensionThatIsInferredBesideANumberIsFitted) {
  const auto function = [](const at::Tensor& x) { return x.reshape({x.size(0), -1, 4}).tanh(); };
  const auto f = aot_function(function, exact());
  const std::vector<int64_t> sizes = {4, 16, 10, 6, 5, 13, 7, 11, 3, 14, 2, 15};  // 12 * 10 is no multiple of 16
  for (int round = 0; round < 2; ++round) {
    for (const int64_t n : sizes) {
      const auto x = leaf({n, 12});
      const at::Tensor given = f(x), expected = function(x);
      EXPECT_TRUE(given.equal(expected)) << n;
      EXPECT_TRUE(torch::autograd::grad({given.sum()}, {x})[0].equal(torch::autograd::grad({expected.sum()}, {x})[0])) << n;
    }
  }
  EXPECT_EQ(f.stats().hits, sizes.size());
  EXPECT_EQ(f.stats().eager, 0U);
  EXPECT_LE(f.core().programs().size(), 3U);
}

// Kernels are chosen for a value of one element. It must have one at all sizes that the fitted program serves.
TEST(AotSemantics, ValuesOfOneElementAtTheFirstSizes) {
  const auto function = [](const at::Tensor& x) {
    const at::Tensor some = x.view({x.size(0), 1}).chunk(2).back().slice(0, 0, std::nullopt, 2);
    return some * some.mean();
  };
  AotOptions options = exact();
  options.fw_compiler = options.bw_compiler = compilers::fused();
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 2, 6, 7, 6, 9, 8, 6}, {2, 3, 6, 7, 6, 9, 12, 9}, {7, 2, 3, 8, 7, 10}}) {
    const auto f = aot_function(function, options);
    for (int round = 0; round < 2; ++round) {
      for (const int64_t n : sizes) {
        const auto x = leaf({n});
        const at::Tensor given = f(x), expected = function(x);
        EXPECT_TRUE(at::allclose(given, expected)) << n;
        EXPECT_TRUE(at::allclose(torch::autograd::grad({given.sum()}, {x})[0], torch::autograd::grad({expected.sum()}, {x})[0])) << n;
      }
    }
    EXPECT_EQ(f.stats().eager, 0U);
    EXPECT_LE(f.core().programs().size(), 6U);
  }
}

// A size of 1 teaches nothing about other sizes.
TEST(AotSemantics, SizesThatGrowFromOneAreFitted) {
  const auto function = [](const at::Tensor& x) { return x.reshape({x.size(0), -1, 4}).tanh() / x.size(0); };
  const auto f = aot_function(function, exact());
  constexpr int64_t kMost = 20;
  for (int round = 0; round < 2; ++round) {
    for (int64_t n = 1; n <= kMost; ++n) {
      const auto x = leaf({n, 12});
      const at::Tensor given = f(x), expected = function(x);
      EXPECT_TRUE(given.equal(expected)) << n;
      EXPECT_TRUE(torch::autograd::grad({given.sum()}, {x})[0].equal(torch::autograd::grad({expected.sum()}, {x})[0])) << n;
    }
  }
  EXPECT_EQ(f.stats().eager, 0U);
  EXPECT_EQ(f.stats().hits, static_cast<uint64_t>(kMost));
}

// Read as a number, a size that never changed is pinned: the program serves all values of the other sizes.
TEST(AotSemantics, ASizeThatNeverChangedIsPinned) {
  const auto function = [](const at::Tensor& x) { return x.view({-1, x.size(1) / 2, 2}).cos(); };
  const auto f = aot_function(function, exact());
  const auto check = [&](int64_t rows, int64_t columns) {
    const auto x = leaf({rows, columns});
    const at::Tensor given = f(x), expected = function(x);
    EXPECT_TRUE(given.equal(expected)) << rows << " x " << columns;
    EXPECT_TRUE(torch::autograd::grad({given.sum()}, {x})[0].equal(torch::autograd::grad({expected.sum()}, {x})[0]));
  };
  for (const int64_t rows : {4, 6, 9, 5, 7, 16}) check(rows, 6);
  EXPECT_EQ(f.stats().traces, 2U) << "one program for its own sizes, one for any number of rows";
  for (const int64_t columns : {8, 10, 14, 6, 12, 8}) check(5, columns);
  check(4, 6);
  EXPECT_EQ(f.stats().eager, 0U);
}

TEST(AotSemantics, SizesAreInferredWhereNoBranchDependsOnThem) {
  const auto w = leaf({8, 8});
  const auto function = [](const at::Tensor& x, const at::Tensor& weight) {
    return x.matmul(weight).view({x.size(0) * x.size(1), 8}).sin();
  };
  AotOptions options = exact();
  options.dynamic = Dynamic::Inferred;
  const auto f = aot_function(function, options);
  for (const int64_t rows : {3, 5, 12, 9, 4, 7, 6, 13, 8, 13}) {  // 13 is outside of the sizes compared so far
    const auto x = torch::randn({rows, rows + 2, 8});
    const auto given = f(x, w), expected = function(x, w);
    EXPECT_TRUE(given.equal(expected)) << rows;
    EXPECT_TRUE(torch::autograd::grad({given.square().sum()}, {w})[0].equal(torch::autograd::grad({expected.square().sum()}, {w})[0]))
        << rows;
  }
  EXPECT_EQ(f.stats().traces, 4U);
  EXPECT_EQ(f.stats().hits, 6U);
}

// Each way in which a plain number may depend on a size, at sizes between those that were seen.
TEST(AotSemantics, PlainNumbersOfSizesAreProvedAtEachSize) {
  using Case = std::pair<const char*, std::function<at::Tensor(const at::Tensor&)>>;
  const std::vector<Case> cases = {
      {"a branch on one size", [](const at::Tensor& x) { return x.size(0) == 8 ? x * 3 : x * 2; }},
      {"half, rounded up", [](const at::Tensor& x) { return x.narrow(0, 0, (x.size(0) + 1) / 2) * 2; }},
      {"a third", [](const at::Tensor& x) { return x.narrow(0, 0, x.size(0) / 3).sin(); }},
      {"padded to even",
       [](const at::Tensor& x) {
         return at::constant_pad_nd(x, {0, 0, 0, x.size(0) % 2}).cos();
       }},
      {"rounded up to fours", [](const at::Tensor& x) { return x.new_ones({(x.size(0) + 3) / 4 * 4}) + x.sum(); }},
  };
  for (const auto& [name, function] : cases) {
    const auto f = aot_function(function, exact());
    for (int round = 0; round < 2; ++round) {
      for (const int64_t rows : {4, 16, 12, 6, 8, 7, 9, 11, 10, 5, 3, 13}) {
        const auto x = torch::randn({rows, 3}).requires_grad_();
        const auto given = f(x), expected = function(x);
        ASSERT_TRUE(given.equal(expected)) << name << ", " << rows;
        ASSERT_TRUE(torch::autograd::grad({given.square().sum()}, {x})[0].equal(torch::autograd::grad({expected.square().sum()}, {x})[0]))
            << name << ", " << rows;
      }
    }
  }
}

TEST(AotSemantics, ABranchOnASizeBeyondThoseComparedIsFound) {
  const auto function = [](const at::Tensor& x) { return x.size(0) > 8 ? x * 2 : x.view({x.size(0), 1}).squeeze(1) * 3; };
  const auto f = aot_function(function, exact());
  for (const int64_t rows : {4, 5, 7, 6, 9, 10, 11, 8, 5, 20}) {
    const auto x = torch::randn({rows}).requires_grad_();
    const auto y = f(x);
    EXPECT_TRUE(y.equal(function(x))) << rows;
    EXPECT_TRUE(torch::autograd::grad({y.sum()}, {x})[0].equal(torch::autograd::grad({function(x).sum()}, {x})[0])) << rows;
  }
  EXPECT_GT(f.stats().hits, 0U);
}

TEST(AotSemantics, WhatFitsTwoSizesByChanceIsFoundOut) {
  const auto function = [](const at::Tensor& x) { return x * (x.size(0) == 4 ? 2 : 1) + torch::full({x.size(0)}, x.size(0) < 8 ? 6 : 9); };
  const auto f = aot_function(function, exact());
  for (int round = 0; round < 2; ++round) {
    for (const int64_t rows : {3, 5, 9, 4, 6, 11}) {
      const auto x = torch::randn({rows});
      EXPECT_TRUE(f(x).equal(function(x))) << rows;
    }
  }
}

TEST(AotSemantics, TheUsersCompilersGetProgramsAndInputs) {
  std::vector<size_t> inputs;
  std::string text;
  const auto compiler = [&](const std::shared_ptr<const Graph>& graph, const Tensors& examples) -> ProgramFunction {
    inputs.push_back(examples.size());
    text += graph->print();
    return [graph](Tensors given) { return graph->run(std::move(given)); };
  };
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compiler;
  const auto f = aot_function([](at::Tensor a, at::Tensor b, at::Tensor c, at::Tensor d) { return (a + b + c + d).cos().cos(); }, options);
  const auto a = leaf({2, 4}), b = leaf({2, 4}), c = leaf({2, 4}), d = leaf({2, 4});
  for (int call = 0; call < 3; ++call) {
    const auto given = torch::autograd::grad({f(a, b, c, d).sum()}, {a})[0];
    EXPECT_TRUE(given.equal(torch::autograd::grad({(a + b + c + d).cos().cos().sum()}, {a})[0]));
  }
  EXPECT_EQ(inputs, (std::vector<size_t>{4, 3, 3})) << "forward, backward, and backward to one argument";
  EXPECT_THAT(text, HasSubstr("return [cos_1, add_2, cos]"));
  EXPECT_THAT(text, HasSubstr("return [mul_1, mul_1, mul_1, mul_1]"));
  EXPECT_THAT(text, HasSubstr("return [mul_1, None, None, None]"));
}

// Ops of the child run on one thread each: a fork has no OpenMP threads, with or without us.
TEST(AotSemantics, AForkedChildGoesOn) {
  const auto function = [](const at::Tensor& a) { return (a * a).sigmoid(); };
  const auto f = aot_function(function);
  const auto a = leaf({300});
  f(a).sum().backward();
  const pid_t child = fork();
  if (child == 0) {
    const auto given = torch::autograd::grad({f(a).sum()}, {a})[0];
    f(leaf({7, 3})).sum().backward();  // compiled in the child
    wait();
    const auto expected = torch::autograd::grad({function(a).sum()}, {a})[0];
    _exit(given.allclose(expected, 1e-5, 1e-6) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hindcast::tests::semantics_test
