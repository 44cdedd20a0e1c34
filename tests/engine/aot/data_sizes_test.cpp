// Sizes that depend on data: nonzero(), masks, unique(). A program has them as symbols, which a run binds.

#include "tests/engine/aot/aot_grads.h"

#include <hindcast/graph.h>

#include <gmock/gmock.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

namespace hindcast::tests::data_sizes_test {
namespace {

using testing::HasSubstr;

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes, torch::requires_grad()); }

// New data in each call, so that the sizes change.
struct Case {
  std::string name;
  std::function<Tensors()> inputs;
  std::function<Tensors(const Tensors&)> function;
  uint64_t hits = 9;  // of ten calls
};

Tensors run(const Case& of, const std::function<Tensors(const Tensors&)>& function, uint64_t seed, bool in_double) {
  torch::manual_seed(seed);
  Tensors inputs = of.inputs();
  for (at::Tensor& input : inputs) {
    if (in_double && input.is_floating_point()) input = input.detach().to(torch::kDouble).set_requires_grad(input.requires_grad());
  }
  Tensors results = function(inputs);
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  for (at::Tensor& result : results) {
    if (result.requires_grad()) loss = loss + (result.sin() * torch::linspace(1, 2, result.numel()).view_as(result)).sum();
    result = result.detach();
  }
  if (loss.requires_grad()) loss.backward();
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) results.push_back(input.grad().defined() ? input.grad() : torch::zeros_like(input));
  }
  return results;
}

double largest(const at::Tensor& tensor) { return tensor.numel() == 0 ? 0 : tensor.to(torch::kDouble).abs().max().item<double>(); }

void expect_like_eager(const Case& of, bool with_kernels, bool is_guarded) {
  AotOptions options = exact_programs();
  if (with_kernels) options.fw_compiler = options.bw_compiler = compilers::fused();
  options.partition = is_guarded ? partition::min_cut : partition::standard;
  const auto compiled = aot_function([&](Tensors inputs) { return of.function(inputs); }, options);
  for (uint64_t call = 0; call < 10; ++call) {
    const Tensors expected = run(of, of.function, call, false), exact = run(of, of.function, call, true);
    Tensors given;
    {
      Options engine;
      engine.compiler = with_kernels ? compilers::fused() : compilers::eager();
      engine.async = false;
      std::optional<Guard> guard;
      if (is_guarded) guard.emplace(enable(engine));
      given = run(of, compiled, call, false);
    }
    ASSERT_EQ(given.size(), expected.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string where = of.name + ", call " + std::to_string(call) + ", " + std::to_string(i);
      ASSERT_EQ(given[i].sizes(), expected[i].sizes()) << where;
      if (!with_kernels) {
        EXPECT_TRUE(given[i].equal(expected[i])) << where;
      } else {
        EXPECT_LE(largest(given[i] - exact[i]), 2 * largest(expected[i] - exact[i]) + kRounding * largest(exact[i])) << where;
      }
    }
  }
  EXPECT_EQ(compiled.stats().hits, of.hits) << of.name << (with_kernels ? ", kernels" : "") << (is_guarded ? ", guarded" : "");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto matrix = [] { return Tensors{leaf({12, 4}), leaf({12, 4})}; };
  all.push_back({"sum of a mask", matrix, [](const Tensors& x) { return Tensors{x[0].index({x[0] > 0}).sum()}; }});
  all.push_back({"rows", matrix, [](const Tensors& x) {
                   return Tensors{(x[0].index({x[1].sum(1) > 0}).tanh() * 3).sum(0), x[1].index({x[0] < 0}) * 2};
                 }});
  all.push_back({"nonzero", matrix, [](const Tensors& x) {
                   const auto pairs = (x[0] > x[1]).nonzero().unbind(1);
                   return Tensors{(x[0].index({pairs[0]}) - x[1].index_select(0, pairs[1])).exp().sum(1), pairs[0]};
                 }});
  all.push_back({"where", matrix, [](const Tensors& x) {
                   const auto places = at::where(x[0] > 0);
                   return Tensors{x[1].index({places[0], places[1]}).cos(), places[1]};
                 }});
  all.push_back({"masked_select", matrix, [](const Tensors& x) {
                   const at::Tensor some = x[0].masked_select(x[1] > 0);
                   return Tensors{(some * some).mean(), x[0].masked_select((x[1] > 0).select(1, 0).unsqueeze(1)) + 1};
                 }});
  all.push_back({"two masks", matrix, [](const Tensors& x) {
                   const auto mask = x[0].sum(1) > 0;
                   const auto a = x[0].index({mask}), b = x[1].index({mask});  // of one size
                   const auto c = x[1].index({mask.logical_not()});
                   return Tensors{(a * b).sum(1), c.exp(), at::cat({a, c}).sin()};
                 }});
  all.push_back({"one behind another", matrix, [](const Tensors& x) {
                   const auto some = x[0].index({x[0].sum(1) > -1});
                   return Tensors{some.index({some.select(1, 0) > 0}).exp() * 2};
                 }});
  all.push_back({"index_add", matrix, [](const Tensors& x) {
                   const auto pairs = (x[0].mm(x[1].t()) > 0).nonzero().unbind(1);
                   const auto terms = (x[0].index_select(0, pairs[0]) - x[1].index_select(0, pairs[1])).pow(2).sum(1).exp();
                   return Tensors{torch::zeros({12}, x[0].options()).index_add(0, pairs[0], terms)};
                 }});
  all.push_back({"writes by a mask", matrix, [](const Tensors& x) {
                   const auto mask = x[0].sum(1) > 0;
                   const auto y = x[0] * 2;
                   y.index_put_({mask}, x[1].index({mask}).tanh());
                   return Tensors{y};
                 }});
  all.push_back({"writes by a mask that is known nowhere else",
                 [] {
                   return Tensors{leaf({12, 4}), leaf({4}), leaf({})};
                 },
                 [](const Tensors& x) {
                   const auto y = x[0] * 2, z = x[0].sin();
                   y.index_put_({x[0].sum(1) > 0}, x[1]);
                   z.index_put_({x[0] > 0}, x[2]);
                   return Tensors{y, z};
                 }});
  all.push_back({"writes a number by a mask",
                 [] {
                   return Tensors{leaf({12, 4})};
                 },
                 [](const Tensors& x) {
                   auto y = x[0] * 2;
                   y.index_put_({x[0] > 0}, 3);
                   return Tensors{y};
                 }});
  all.push_back({"new tensors of that size", matrix, [](const Tensors& x) {
                   const auto some = x[0].index({x[0] > 0});
                   return Tensors{some + at::ones_symint({some.sym_size(0)}, some.options()), at::zeros_like(some) - some,
                                  some.unsqueeze(1).expand_symint({some.sym_size(0), 3}).sum(1)};
                 }});
  all.push_back({"unique",
                 [] {
                   return Tensors{leaf({9}), torch::randint(0, 5, {30})};
                 },
                 [](const Tensors& x) {
                   const auto [values, inverse, counts] = at::_unique2(x[1], true, true, true);
                   const auto of_group = x[0].index({values}) * counts;
                   return Tensors{of_group, of_group.index({inverse}).exp()};
                 }});
  all.push_back({"matrix products",
                 [] {
                   return Tensors{leaf({40, 4}), leaf({4, 8}), leaf({8})};
                 },
                 [](const Tensors& x) {
                   const auto some = x[0].index({x[0].select(1, 0) > 0});
                   return Tensors{at::celu(some.mm(x[1]) + x[2], 0.1).mean(0)};
                 }});
  return all;
}

TEST(DataSizes, ProgramsHaveThemAsSymbols) {
  for (const Case& of : cases()) {
    for (const bool is_guarded : {false, true}) {
      for (const bool with_kernels : {false, true}) expect_like_eager(of, with_kernels, is_guarded);
    }
  }
}

at::Tensor of_positive(const at::Tensor& x) { return (x.index({x > 0}) * 2).exp().sum() + x.sum(); }

at::Tensor with_positive(int64_t count, int64_t size = 20) {
  const auto x = torch::full({size}, -1.0, torch::kFloat);
  x.slice(0, 0, count).uniform_(0.5, 1);
  return x.requires_grad_();
}

template <class F>
void expect_gradient(const F& f, const at::Tensor& x) {
  EXPECT_TRUE(torch::autograd::grad({f(x)}, {x})[0].equal(torch::autograd::grad({of_positive(x)}, {x})[0]))
      << (x > 0).sum().template item<int64_t>();
}

// A trace at size 5 is not valid for 0 and 1; each of these gets its own program.
TEST(DataSizes, NoneAndOne) {
  for (const auto& counts : {std::vector<int64_t>{5, 0, 1}, {0, 5, 1}, {1, 0, 7}}) {
    const auto f = aot_function(&of_positive, exact_programs());
    for (const int64_t count : counts) expect_gradient(f, with_positive(count));
    EXPECT_EQ(f.stats().traces, 3U);
    EXPECT_EQ(f.stats().hits, 0U);
    for (const int64_t count : {0, 1, 2, 3, 9, 20, 1, 0, 0, 4}) expect_gradient(f, with_positive(count));
    EXPECT_EQ(f.stats().traces, 3U);
    EXPECT_EQ(f.stats().hits, 10U);
    EXPECT_EQ(get_graphs(f).size(), 3U);
  }
}

TEST(DataSizes, WithoutGradMode) {
  const auto f = aot_function(&of_positive, exact_programs());
  const at::NoGradGuard no_grad;
  for (const int64_t count : {4, 6, 0, 5, 1, 0, 1, 7}) {
    const auto x = with_positive(count);
    EXPECT_TRUE(f(x).equal(of_positive(x))) << count;
  }
  EXPECT_EQ(f.stats().traces, 3U);
  EXPECT_EQ(f.stats().hits, 5U);
}

// A plain integer is fixed at its value in the trace: calls with other values run the function, after some of them without trying a
// program.
TEST(DataSizes, APlainSizeIsCompared) {
  const auto function = [](const at::Tensor& x) {
    const auto some = x.index({x > 0});
    return some.sum() * static_cast<double>(some.size(0));
  };
  AotOptions options = exact_programs();
  options.limit = 3;
  const auto f = aot_function(function, options);
  for (const int64_t count : {4, 4, 6, 6, 4, 7, 8, 4, 6}) {
    const auto x = with_positive(count);
    EXPECT_TRUE(torch::autograd::grad({f(x)}, {x})[0].equal(torch::autograd::grad({function(x)}, {x})[0])) << count;
  }
  EXPECT_EQ(f.stats().traces, 3U);
  EXPECT_EQ(f.stats().hits, 5U);
  EXPECT_EQ(f.stats().eager, 1U);
  for (int64_t count = 9; count < 19; ++count) f(with_positive(count)).backward();
  const uint64_t differed = f.stats().numbers_differed;
  f(with_positive(19)).backward();
  EXPECT_EQ(f.stats().numbers_differed, differed);
  EXPECT_LE(get_graphs(f).size(), 3U);
}

TEST(DataSizes, BranchesAreGuarded) {
  const auto function = [](const at::Tensor& x) {
    const auto some = x.index({x > 0});
    return some.sym_size(0) > 6 ? (some * 3).sum() : some.exp().sum();
  };
  const auto f = aot_function(function, exact_programs());
  for (const int64_t count : {4, 5, 8, 9, 3, 12, 6, 7}) {
    const auto x = with_positive(count);
    EXPECT_TRUE(torch::autograd::grad({f(x)}, {x})[0].equal(torch::autograd::grad({function(x)}, {x})[0])) << count;
  }
  EXPECT_EQ(f.stats().traces, 2U);
  EXPECT_EQ(f.stats().hits, 6U);
}

// A program that finds out midway that it does not fit the call has had no effect.
TEST(DataSizes, WritesAndRandomNumbersHappenOnce) {
  const auto function = [](at::Tensor x, at::Tensor count) {
    count.add_(1);
    const auto drawn = torch::rand({20});
    const auto some = x.index({x > 0});
    return (some.sum() * static_cast<double>(some.size(0)) + drawn.sum());
  };
  const auto f = aot_function(function, exact_programs());
  const auto count = torch::zeros({});
  double calls = 0;
  for (const int64_t positive : {4, 4, 5, 6, 5, 4, 7, 8, 9, 10, 11, 12, 13, 14}) {
    const auto x = with_positive(positive);
    torch::manual_seed(positive);
    const at::Tensor given = f(x, count);
    const at::Tensor next = torch::rand({3});
    torch::manual_seed(positive);
    EXPECT_TRUE(given.equal(function(x, torch::zeros({})))) << positive;
    EXPECT_TRUE(next.equal(torch::rand({3})));
    EXPECT_EQ(count.item<double>(), ++calls);
    given.backward();
  }
  EXPECT_EQ(f.stats().hits, 3U);
}

// The inputs' sizes change too.
TEST(DataSizes, BesideSizesOfArguments) {
  const auto f = aot_function(&of_positive, exact_programs());
  for (const int64_t size : {20, 20, 24, 31, 26, 20}) expect_gradient(f, with_positive(size / 2, size));
  EXPECT_EQ(f.stats().traces, 2U);
  EXPECT_EQ(f.stats().hits, 4U);
}

// Sizes of arguments read as plain numbers, which a fit expresses by symbols; some are compared with a size that depends on data.
TEST(DataSizes, BesidePlainSizesOfArguments) {
  const auto function = [](const at::Tensor& x) {
    const auto positive = (x > 0).nonzero().select(1, 0);
    const auto halves = torch::zeros({x.size(0), 2}, x.options()).index_add(0, positive, x.index({positive}).unsqueeze(1).expand({-1, 2}));
    return positive.sym_size(0) * 2 > x.size(0) ? halves.exp().sum() : halves.sin().sum();
  };
  const auto f = aot_function(function, exact_programs());
  const auto expect_same = [&](int64_t count, int64_t size) {
    const auto x = with_positive(count, size);
    EXPECT_TRUE(torch::autograd::grad({f(x)}, {x})[0].equal(torch::autograd::grad({function(x)}, {x})[0])) << count << " of " << size;
  };
  for (const int64_t size : {20, 24, 30, 32, 40}) expect_same(size / 2 - 2, size);
  EXPECT_EQ(f.stats().traces, 5U);  // each size once
  const uint64_t hits = f.stats().hits;
  for (const int64_t size : {20, 24, 30, 32, 40}) expect_same(size / 2 - 3, size);
  EXPECT_EQ(f.stats().traces, 5U);
  EXPECT_EQ(f.stats().hits, hits + 5);
  EXPECT_LE(get_graphs(f).size(), 3U);
  for (const int64_t size : {20, 24, 30, 32, 40}) {
    expect_same(size / 2 + 3, size);  // the other branch
    expect_same(size / 2 - 4, size);
  }
}

// The interpreter reads sizes as plain numbers.
TEST(DataSizes, OfTorchScript) {
  const torch::jit::GraphOptimizerEnabledGuard op_by_op(false);
  const auto unit = torch::jit::compile(R"(
def energy(x):
    some = torch.nonzero(x > 0).squeeze(1)
    near = x[some].exp() * 2
    return torch.zeros([x.size(0)]).index_add(0, some, near * near).sum() + x[x < 0].sin().sum()
)");
  const auto function = [&](const at::Tensor& x) { return unit->run_method("energy", x).toTensor(); };
  const auto f = aot_function(function, exact_programs());
  for (const int64_t count : {5, 8, 12, 4, 15, 0, 6, 0}) {
    const auto x = with_positive(count);
    EXPECT_TRUE(torch::autograd::grad({f(x)}, {x})[0].equal(torch::autograd::grad({function(x)}, {x})[0])) << count;
  }
  EXPECT_EQ(f.stats().traces, 2U);
  EXPECT_EQ(f.stats().hits, 6U);
}

TEST(DataSizes, SecondDerivatives) {
  const auto function = [](const at::Tensor& x) {
    const auto pairs = (x.unsqueeze(0) > x.unsqueeze(1)).nonzero().unbind(1);
    const auto some = x.index({x > 0});
    return (x.index_select(0, pairs[0]) * x.index_select(0, pairs[1]).sin()).sum() + some.pow(3).sum();
  };
  for (const bool is_guarded : {false, true}) {
    const auto f = aot_function(function, exact_programs());
    const auto derivatives = [&](const auto& of, const at::Tensor& x) {
      const auto slope = torch::autograd::grad({of(x)}, {x}, {}, true, true)[0];
      return torch::autograd::grad({slope.square().sum()}, {x})[0];
    };
    for (const int64_t count : {5, 7, 9, 6, 3, 0, 12}) {
      const auto x = with_positive(count).detach().requires_grad_();
      const auto expected = derivatives(function, x);
      Options engine;
      engine.compiler = compilers::eager();
      std::optional<Guard> guard;
      if (is_guarded) guard.emplace(enable(engine));
      EXPECT_TRUE(torch::allclose(derivatives(f, x), expected, 1e-4, 1e-5)) << count << is_guarded;
    }
    EXPECT_GE(f.stats().hits, 4U) << is_guarded;
    EXPECT_EQ(f.stats().eager, 0U) << is_guarded;
  }
}

TEST(DataSizes, AreComparedWithTheFunction) {
  AotOptions options = exact_programs();
  options.check_every = 2;
  const auto f = aot_function(&of_positive, options);
  for (const int64_t count : {5, 6, 0, 7, 1, 0, 9, 1, 4}) expect_gradient(f, with_positive(count));
  EXPECT_EQ(f.stats().hits, 6U);
}

TEST(DataSizes, ThePrintedProgramNamesThem) {
  const auto f = aot_function(&of_positive, exact_programs());
  f(with_positive(5)).backward();
  const std::string text = get_graphs(f).at(0).forward->print();
  EXPECT_THAT(text, HasSubstr("u0 = nonzero.size(0)"));
  EXPECT_THAT(text, HasSubstr("guards: u0 >= 2"));
  EXPECT_THAT(get_graphs(f).at(0).backward->print(), HasSubstr("u0 = sizes[0]"));
}

// Some calls never get a backward: their traces stay pending and do not block others.
TEST(DataSizes, CallsWithoutABackward) {
  const auto f = aot_function(&of_positive, exact_programs());
  for (int round = 0; round < 3; ++round) {
    for (const int64_t count : {5, 0, 1, 6}) f(with_positive(count));
  }
  for (const int64_t count : {5, 0, 1, 6, 0, 1, 7}) expect_gradient(f, with_positive(count));
  EXPECT_GE(f.stats().hits, 1U);
}

TEST(DataSizes, AMaskThatDoesNotFitIsEagersError) {
  const auto f = aot_function([](const at::Tensor& x, const at::Tensor& mask) { return x.index({mask}); }, exact_programs());
  const auto x = torch::ones({4});
  EXPECT_ANY_THROW(f(x, torch::ones({3}, torch::kBool)));
  EXPECT_TRUE(f(x, torch::ones({4}, torch::kBool)).equal(x));
  EXPECT_TRUE(f(x, torch::tensor(true)).equal(x.unsqueeze(0)));
}

}  // namespace
}  // namespace hindcast::tests::data_sizes_test
