// Backwards with create_graph under a guard: they run as programs, with the stock engine's results and histories.

#include "hindcast/hindcast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/programs.h"

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;
using Step = std::function<Tensors(int step)>;

at::Tensor slope_of(const at::Tensor& value, const at::Tensor& of, bool create_graph = true) {
  return torch::autograd::grad({value.sum()}, {of}, {}, /*retain_graph=*/true, create_graph)[0];
}

struct Seen {
  std::vector<Tensors> results;  // per step
  Stats stats;
};

Seen run(int steps, const Step& step, const Options* options) {
  at::manual_seed(3);
  hindcast::reset();
  Seen seen;
  std::optional<Guard> guard;
  if (options != nullptr) guard.emplace(hindcast::enable(*options));
  for (int i = 0; i < steps; ++i) {
    seen.results.push_back(step(i));
    hindcast::wait();
  }
  seen.stats = hindcast::stats();
  return seen;
}

bool is_near(const at::Tensor& given, const at::Tensor& expected) {
  if (!given.defined() || !expected.defined()) return given.defined() == expected.defined();
  const double bound = 1e-5 * std::max(1.0, expected.abs().max().item<double>());
  return given.sizes() == expected.sizes() && given.requires_grad() == expected.requires_grad() &&
         (given - expected).abs().max().item<double>() <= bound;
}

/// By ATen's operators and by kernels. Without `warm_up`, any backward may run on the stock engine; else only those of the first `warm_up`
/// steps.
void expect_right(int steps, const Step& step, std::optional<int> warm_up = {}) {
  const Seen stock = run(steps, step, nullptr);
  for (const Compiler& compiler : {compilers::eager(), compilers::fused()}) {
    Options options;
    options.compiler = compiler;
    options.async = false;
    const Seen ours = run(steps, step, &options);
    for (int i = 0; i < steps; ++i) {
      ASSERT_EQ(ours.results[i].size(), stock.results[i].size());
      for (size_t r = 0; r < stock.results[i].size(); ++r)
        EXPECT_TRUE(is_near(ours.results[i][r], stock.results[i][r])) << "step " << i << ", result " << r << ":\n"
                                                                      << ours.results[i][r] << "\nexpected\n"
                                                                      << stock.results[i][r];
    }
    if (!warm_up) continue;
    EXPECT_EQ(run(*warm_up, step, &options).stats.fallbacks_by_reason["CreateGraph"], Stats(ours.stats).fallbacks_by_reason["CreateGraph"])
        << "later steps fell back";
    EXPECT_GT(ours.stats.hits, 0U);
  }
}
void expect_programs(int steps, const Step& step, int warm_up = 3) { expect_right(steps, step, warm_up); }

Tensors take_grads(const Tensors& leaves) {
  Tensors grads;
  for (const at::Tensor& leaf : leaves) {
    grads.push_back(leaf.grad().defined() ? leaf.grad().detach().clone() : at::Tensor());
    leaf.mutable_grad().reset();
  }
  return grads;
}

struct Net {
  at::Tensor first = leaf({3, 8}), bias = leaf({8}), second = leaf({8, 1});
  at::Tensor operator()(const at::Tensor& x) const { return at::addmm(bias, x, first).tanh().mm(second); }
  Tensors leaves() const { return {first, bias, second}; }
};

TEST(SecondOrder, GradientPenalty) {
  const Net net;
  expect_programs(6, [&](int) {
    const auto x = leaf({5, 3});
    const auto out = net(x);
    (out.mean() + (slope_of(out, x).norm(2, 1) - 1).pow(2).mean()).backward();
    return take_grads({x, net.first, net.bias, net.second});
  });
}

TEST(SecondOrder, LaplacianIsOfThirdOrder) {
  const Net net;
  expect_programs(
      8,
      [&](int) {
        const auto x = leaf({7, 3});
        const auto slope = slope_of(net(x), x);
        at::Tensor laplacian;
        for (int64_t dim = 0; dim < 3; ++dim) {
          const auto second = slope_of(slope.select(1, dim), x).select(1, dim);
          laplacian = laplacian.defined() ? laplacian + second : second;
        }
        laplacian.pow(2).mean().backward();
        return take_grads({net.first, net.bias, net.second});
      },
      5);
}

TEST(SecondOrder, FourthDerivative) {
  expect_programs(
      10,
      [&](int) {
        const auto x = leaf({6});
        at::Tensor y = x.pow(5).sin();
        Tensors derivatives;
        for (int order = 0; order < 4; ++order) {
          y = slope_of(y, x, order < 3);
          derivatives.push_back(y.detach());
        }
        return derivatives;
      },
      8);
}

TEST(SecondOrder, HessianVectorProduct) {
  const Net net;
  expect_programs(6, [&](int) {
    const auto x = leaf({5, 3}), v = at::randn({5, 3});
    return torch::autograd::grad({(slope_of(net(x).exp(), x) * v).sum()}, {x});
  });
}

TEST(SecondOrder, GradientsThatFlowInHaveAHistoryToo) {
  expect_programs(6, [&](int) {
    const auto x = leaf({4, 3}), v = leaf({4, 3});
    const auto product = torch::autograd::grad({x.sin()}, {x}, {v}, {}, /*create_graph=*/true)[0];
    product.pow(2).sum().backward();
    return take_grads({x, v});
  });
}

TEST(SecondOrder, InnerStepsOfMaml) {
  const Net net;
  expect_programs(
      6,
      [&](int) {
        const auto x = at::randn({5, 3}), y = at::randn({5, 1});
        Tensors weights = net.leaves();
        const auto loss = [&] { return (at::addmm(weights[1], x, weights[0]).tanh().mm(weights[2]) - y).pow(2).mean(); };
        for (int inner = 0; inner < 3; ++inner) {
          const auto grads = torch::autograd::grad({loss()}, weights, {}, {}, /*create_graph=*/true);
          for (size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i] - 0.1 * grads[i];
        }
        loss().backward();
        return take_grads(net.leaves());
      },
      5);
}

TEST(SecondOrder, IntoGradsOfLeaves) {
  const Net net;
  expect_programs(6, [&](int) {
    const auto x = at::randn({5, 3});
    net(x).pow(2).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    at::Tensor norm;
    for (const at::Tensor& leaf : net.leaves()) norm = norm.defined() ? norm + leaf.grad().pow(2).sum() : leaf.grad().pow(2).sum();
    EXPECT_TRUE(net.first.grad().requires_grad());
    Tensors found = torch::autograd::grad({norm}, net.leaves());
    for (const at::Tensor& grad : take_grads(net.leaves())) found.push_back(grad);
    return found;
  });
}

TEST(SecondOrder, AccumulatesOutOfPlace) {
  expect_same_steps(
      5,
      [](Log& log, int) {
        const auto x = leaf({3});
        x.pow(3).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
        const at::Tensor first = x.grad();
        x.pow(2).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
        log.note(x.grad().is_same(first) ? "in place" : "out of place");
        log.show("first", first);
        log.show("sum", x.grad());
        x.mutable_grad().reset();
      },
      Takeover::Any);
}

// Position and time of a physics-informed net: two inputs in one history.
TEST(SecondOrder, TwoInputsOfOneNet) {
  const Net net;
  expect_programs(
      7,
      [&](int) {
        const auto x = leaf({6, 2}), t = leaf({6, 1});
        const auto slopes = torch::autograd::grad({net(at::cat({x, t}, 1)).sum()}, {x, t}, {}, {}, /*create_graph=*/true);
        const auto second = slope_of(slopes[0].select(1, 0), x).select(1, 0);
        (slopes[1].select(1, 0) - 0.1 * second).pow(2).mean().backward();
        return take_grads({x, t, net.first, net.bias, net.second});
      },
      6);
  expect_same_steps(6, [](Log& log, int step) {
    const Net net;
    const auto x = leaf({6, 2}), t = leaf({6, 1});
    const auto slopes = torch::autograd::grad({net(at::cat({x, t}, 1)).sum()}, {x, t}, {}, {}, /*create_graph=*/true);
    const bool retains = step % 2 == 0;
    log.show("of one", torch::autograd::grad({slopes[0].exp().sum()}, {net.first, x}, {}, retains, /*create_graph=*/step % 3 == 0));
    if (retains) log.show("of the other", torch::autograd::grad({slopes[1].exp().sum()}, {net.first, x}));
  });
}

// One program makes both slopes, so that they could share a node, and its hooks.
TEST(SecondOrder, HooksOfAResultThatGetsNoGradient) {
  expect_same_steps(
      6,
      [](Log& log, int step) {
        const auto x = leaf({3, 4}), w = leaf({4});
        const auto slopes = torch::autograd::grad({(x * w).exp().sum()}, {x, w}, {}, /*retain_graph=*/true, /*create_graph=*/true);
        for (const size_t i : {0, 1}) {
          slopes[i].register_hook([&log, i](const at::Tensor& grad) {
            log.note(grad.defined() ? "hook of " + std::to_string(i) : "a hook without a gradient");
            return grad * 2;
          });
        }
        slopes[1].retain_grad();
        const bool is_third = step % 2 == 1;
        const at::Tensor& slope = slopes[static_cast<size_t>(step % 3 == 0)];
        log.show("second", torch::autograd::grad({slope.pow(2).sum()}, {x, w}, {}, /*retain_graph=*/true, is_third));
        log.show("of both", torch::autograd::grad({slopes[0].sum() + slopes[1].exp().sum()}, {x, w}));
        log.show("retained", slopes[1].grad());
      },
      Takeover::Any);
}

TEST(SecondOrder, ResultsWithHistoriesOfTheirOwn) {
  expect_same_steps(
      6,
      [](Log& log, int step) {
        const auto x = at::tensor({0.0, 1.0, 4.0}).set_requires_grad(true), w = at::tensor({0.0, 1.0, 4.0}).set_requires_grad(true);
        w.register_hook([&](const at::Tensor& grad) { log.show("hook of w", grad); });
        const auto slopes =
            torch::autograd::grad({x.pow(4).sum() + w.pow(1.5).sum()}, {x, w}, {}, /*retain_graph=*/{}, /*create_graph=*/true);
        if (step % 2 == 0) {
          (slopes[0].pow(2).sum() + w.sum()).backward({}, {}, /*create_graph=*/true);
          log.show("grads", {x.grad(), w.grad()});
          x.mutable_grad().reset();
          w.mutable_grad().reset();
          return;
        }
        log.attempt("unused", [&] { torch::autograd::grad({slopes[0].sum()}, {w}, {}, /*retain_graph=*/true); });
        {
          const at::NoGradGuard no_grad;
          w.add_(1);
        }
        log.attempt("of x", [&] { log.show("second of x", torch::autograd::grad({slopes[0].sum()}, {x})); });
        log.attempt("of w", [&] { log.show("second of w", torch::autograd::grad({slopes[1].sum()}, {w})); });
      },
      Takeover::Any);
}

TEST(SecondOrder, InNoGradMode) {
  expect_same_steps(5, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.exp().sum();
    at::Tensor slope;
    {
      const at::NoGradGuard no_grad;
      slope = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    }
    log.show("slope", slope);
    log.show("second", torch::autograd::grad({slope.sum()}, {x}));
  });
}

TEST(SecondOrder, WritesToViews) {
  expect_programs(6, [&](int) {
    const auto x = leaf({4, 3}), y = leaf({4});
    auto both = x.sin();
    both.select(1, 1).mul_(y.exp());
    return torch::autograd::grad({slope_of(both.pow(2), x).pow(2).sum()}, {x, y}, {}, {}, {}, /*allow_unused=*/true);
  });
}

TEST(SecondOrder, WhoRequiresGrad) {
  expect_same_steps(
      5,
      [](Log& log, int) {
        const auto x = leaf({3}), w = leaf({3}), constant = at::randn({3});
        const auto grads = torch::autograd::grad({(x * constant + w * w).sum()}, {x, w}, {}, {}, /*create_graph=*/true);
        log.show("of what is linear, and of what is not", grads);
        const auto unused = leaf({2});
        log.attempt("an unused one", [&] {
          log.show("with one that is unused", torch::autograd::grad({(x * x).sum()}, {x, unused}, {}, {}, true, /*allow_unused=*/true));
          torch::autograd::grad({(x * x).sum()}, {x, unused}, {}, {}, true);
        });
      },
      Takeover::Any);
}

TEST(SecondOrder, ErrorsAreTheStockEngines) {
  expect_same_steps(
      6,
      [](Log& log, int step) {
        const auto x = leaf({3});
        const auto y = x.exp().sin();
        const auto of_y = [&](bool keep) { return torch::autograd::grad({y.sum()}, {x}, {}, keep, /*create_graph=*/true); };
        log.show("once", of_y(step % 2 == 0));
        log.attempt("twice", [&] { log.show("twice", of_y(false)); });
        const auto z = x.sin(), written = z * z;
        {
          const at::NoGradGuard no_grad;
          z.add_(1);
        }
        log.attempt("what was written to", [&] { slope_of(written, x); });
        const auto later = x * x * x, slope = slope_of(later, x);
        {
          const at::NoGradGuard no_grad;
          x.add_(1);
        }
        log.attempt("what was written to later", [&] { log.show("second", torch::autograd::grad({slope.sum()}, {x})); });
      },
      Takeover::Any);
}

TEST(SecondOrder, HooksRunOnTheStockEngine) {
  expect_same_steps(5, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](const at::Tensor& grad) {
      log.show("hook", grad);
      return grad * 2;
    });
    const auto slope = slope_of(y.exp(), x);
    slope.register_hook([&](const at::Tensor& grad) { log.show("hook of the slope", grad); });
    slope.pow(2).sum().backward();
    log.show("x.grad", x.grad());
  });
}

uint64_t misses_in_200_steps(const Step& step) {
  Options options;
  options.compiler = compilers::eager();
  return run(200, step, &options).stats.misses;
}

TEST(SecondOrder, SizesThatChangeTakeThreeTraces) {
  const Net net;
  int rows = 0;
  const Step step = [&](int i) {
    rows = 2 + (i * 7) % 23;
    const auto x = leaf({rows, 3});
    const auto to = at::randint(rows, {rows + i % 5});
    const auto out = at::zeros({rows, 1}).index_add(0, to, net(x.index_select(0, to)));
    (out.pow(2).mean() + slope_of(out, x).pow(2).mean()).backward();
    return take_grads({x, net.first, net.bias, net.second});
  };
  expect_programs(12, step, 4);
  EXPECT_LE(misses_in_200_steps(step), 6U) << "of the backwards with create_graph, and of those behind them";
}

TEST(SecondOrder, SizesThatChangeInThirdOrder) {
  const Net net;
  const Step step = [&](int i) {
    const auto x = leaf({2 + (i * 7) % 23, 3});
    const auto slope = slope_of(net(x), x);
    const auto second = slope_of(slope.select(1, 0), x).select(1, 0) + slope_of(slope.select(1, 1), x).select(1, 1);
    (second.pow(2).mean() + slope.narrow(0, 0, 1).sum()).backward();
    return take_grads({x, net.first, net.bias, net.second});
  };
  expect_programs(16, step, 8);
  EXPECT_LE(misses_in_200_steps(step), 20U) << "of three backwards with create_graph, and of those behind them";
}

TEST(SecondOrder, SeveralThreads) {
  const Net net;
  const auto slopes = [&](uint64_t seed) {
    std::vector<at::Tensor> found;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (int i = 0; i < 30; ++i) {
      const auto x = at::randn({5, 3}, generator).set_requires_grad(true);
      found.push_back(torch::autograd::grad({slope_of(net(x), x).pow(2).sum()}, {x})[0]);
    }
    return found;
  };
  const auto expected = slopes(1);
  hindcast::reset();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const auto guard = hindcast::enable();
      const auto found = slopes(1);
      for (size_t k = 0; k < found.size(); ++k) EXPECT_TRUE(is_near(found[k], expected[k])) << k;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The gradient of one factor depends on the other one: a node for each.
TEST(SecondOrder, GradientsWithDifferentHistories) {
  const auto step = [](const std::function<at::Tensor(const Tensors&, const Tensors&)>& of_both) {
    return [of_both](int i) {
      const Tensors leaves = {leaf({4 + i / 4, 3}), leaf({4 + i / 4, 3})};
      const Tensors first = torch::autograd::grad({(leaves[0].sin() * leaves[1].exp()).sum()}, leaves, {}, std::nullopt, true);
      Tensors seen = torch::autograd::grad({of_both(first, leaves)}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
      for (const at::Tensor& each : first) seen.push_back(each.detach());
      return seen;
    };
  };
  expect_programs(8, step([](const Tensors& first, const Tensors&) { return first[0].pow(2).sum() + first[1].sin().sum(); }), 6);
  expect_programs(8, step([](const Tensors& first, const Tensors&) { return first[1].pow(2).sum(); }), 6);
  const auto third = [](const Tensors& first, const Tensors& leaves) {
    const Tensors second = torch::autograd::grad({first[0].pow(2).sum()}, leaves, {}, std::nullopt, true);
    return second[0].sum() + (second[1] * first[1]).sum();
  };
  expect_programs(8, step(third), 6);
}

TEST(SecondOrder, StrictGuardsLeaveThemToTheStockEngine) {
  Options options;
  options.deterministic = true;
  const Net net;
  const Seen seen = run(
      4,
      [&](int) {
        const auto x = leaf({5, 3});
        return torch::autograd::grad({slope_of(net(x), x).pow(2).sum()}, {x});
      },
      &options);
  EXPECT_EQ(Stats(seen.stats).fallbacks_by_reason["CreateGraph"], 4U);
}

}  // namespace
}  // namespace hindcast::tests
