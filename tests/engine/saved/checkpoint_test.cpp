// checkpoint() gives the function's results and gradients, whatever is asked of autograd.

#include <ATen/autocast_mode.h>
#include <hindcast/aot.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "tests/engine/saved/with_and_without.h"

namespace hindcast::tests {

struct TwoTensors {
  at::Tensor first, second;
};
template <class T>
auto hindcast_members(T& two, TwoTensors*) {
  return std::tie(two.first, two.second);
}

namespace {

at::Tensor layer(const at::Tensor& x, const at::Tensor& w) { return x.mm(w).tanh(); }

TEST(Checkpoint, OfABlock) {
  expect_same_with_checkpoints(4, [](Log& log, int step, const Checkpoints& call) {
    const auto x = leaf({3 + step % 2, 4}), w = leaf({4, 4}), v = leaf({4, 4});
    const auto y = call([v](const at::Tensor& a, const at::Tensor& b) { return layer(layer(a, b), v).exp(); }, x, w);
    log.show("y", y);
    y.square().sum().backward();
    log.show("grads", {x.grad(), w.grad(), v.grad()});
  });
}

TEST(Checkpoint, OfAChainOfBlocks) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4});
    std::vector<at::Tensor> weights;
    at::Tensor y = x;
    for (int i = 0; i < 5; ++i) {
      weights.push_back(leaf({4, 4}));
      y = call([](const at::Tensor& a, const at::Tensor& w) { return layer(a, w).sin() + a; }, y, weights.back());
    }
    y.sum().backward();
    log.show("x.grad", x.grad());
    for (const auto& w : weights) log.show("w.grad", w.grad());
  });
}

TEST(Checkpoint, OfAModule) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    torch::nn::Sequential block(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    const torch::nn::Linear head(8, 2);
    const auto x = torch::randn({3, 4});
    call(head, call([block](const at::Tensor& a) mutable { return block->forward(a); }, x)).square().mean().backward();
    for (const auto& p : block->parameters()) log.show("grad", p.grad());
    for (const auto& p : head->parameters()) log.show("grad", p.grad());
  });
}

// Batch statistics are saved; the running ones are written twice.
TEST(Checkpoint, OfABatchNorm) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    torch::nn::BatchNorm1d norm(4);
    const auto x = leaf({6, 4});
    call([norm](const at::Tensor& a) mutable { return norm->forward(a.sin()).exp(); }, x).sum().backward();
    log.show("grads", {x.grad(), norm->weight.grad(), norm->bias.grad()});
  });
}

TEST(Checkpoint, OfAStruct) {
  const auto x = leaf({3}), y = leaf({3});
  const auto product = [](const TwoTensors& two) { return (two.first * two.second).exp(); };
  checkpoint(product, TwoTensors{x, y}).sum().backward();
  const auto given = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  product({x, y}).sum().backward();
  EXPECT_TRUE(given.equal(x.grad()));
}

TEST(Checkpoint, GivesWhateverTheFunctionGives) {
  const auto x = leaf({3});
  const auto both = [](const at::Tensor& a) { return std::tuple(a.sin().exp(), a.cos().exp()); };
  const auto [s, c] = checkpoint(both, x);
  const auto list = checkpoint(
      [](const std::vector<at::Tensor>& all, double scale) {
        return std::vector{all[0] * scale, all[1].exp()};
      },
      std::vector{s, c}, 2.5);
  const TwoTensors two = checkpoint(
      [](const std::map<std::string, at::Tensor>& named) {
        return TwoTensors{named.at("a").exp(), {}};
      },
      std::map<std::string, at::Tensor>{{"a", list[0]}});
  EXPECT_FALSE(two.second.defined());
  const std::optional<at::Tensor> maybe = checkpoint(
      [](const std::optional<at::Tensor>& t) { return t ? std::optional(t->sigmoid()) : std::nullopt; }, std::optional(two.first));
  at::Tensor by_effect;
  checkpoint([&](const at::Tensor& a) { by_effect = a.exp(); }, list[1]);
  (maybe.value() + by_effect).sum().backward();
  const auto given = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  ((x.sin().exp() * 2.5).exp().sigmoid() + x.cos().exp().exp().exp()).sum().backward();
  EXPECT_TRUE(given.equal(x.grad()));
}

TEST(Checkpoint, TakesStringLiteralsAndReferences) {
  const auto x = leaf({3});
  const auto named = [](const at::Tensor& a, const std::string& how) { return how == "sum" ? a.exp().sum() : a.exp().mean(); };
  checkpoint(named, x, "sum").backward();
  EXPECT_TRUE(x.grad().equal(x.exp()));
  const auto written = x.detach().clone();
  checkpoint([](at::Tensor& a, const at::Tensor& b) { return a.mul_(2) * b.exp(); }, written, x);
  EXPECT_TRUE(written.equal(x * 2));
  const auto assigns = [](at::Tensor& a) { return a = a.exp(); };
  EXPECT_THROW(checkpoint(assigns, x), std::invalid_argument);
  const at::NoGradGuard no_grad;
  EXPECT_THROW(checkpoint(assigns, x), std::invalid_argument);
}

TEST(Checkpoint, OfARandomFunctionDrawsTheSameNumbersAgain) {
  for (const bool early : {true, false}) {
    expect_same_with_checkpoints(3, [=](Log& log, int, Checkpoints call) {
      call.options.early_stop = early;
      const auto x = leaf({4, 4}), w = leaf({4, 4});
      at::Tensor y = x;
      for (int i = 0; i < 3; ++i)
        y = call([](const at::Tensor& a, const at::Tensor& b) { return at::dropout(layer(a, b), 0.5, true).exp(); }, y, w);
      log.show("in between", torch::rand({2}));
      y.sum().backward();
      log.show("grads", {x.grad(), w.grad()});
      log.show("after", torch::rand({2}));  // as if the backward had drawn nothing
    });
  }
}

TEST(Checkpoint, WithoutTheRandomStateDrawsOthers) {
  const auto x = torch::ones({256}, torch::requires_grad());
  CheckpointOptions options;
  options.preserve_rng_state = false;
  checkpoint(
      options, [](const at::Tensor& a) { return at::dropout(a.exp(), 0.5, true).exp(); }, x)
      .sum()
      .backward();
  const auto other = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  const auto y = checkpoint([](const at::Tensor& a) { return at::dropout(a.exp(), 0.5, true).exp(); }, x);
  y.sum().backward();
  EXPECT_TRUE(y.eq(1).equal(x.grad().eq(0)));  // exp(0) where the element was dropped
  EXPECT_FALSE(y.eq(1).equal(other.eq(0)));
}

TEST(Checkpoint, Nests) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4}), w = leaf({4, 4});
    const auto inner = [](const at::Tensor& a, const at::Tensor& b) { return layer(layer(a, b), b).exp(); };
    const auto middle = [=](const at::Tensor& a, const at::Tensor& b) {
      return call(inner, a.sin(), b).cos() * call(inner, a.exp(), b.exp());
    };
    const auto outer = [=](const at::Tensor& a, const at::Tensor& b) {
      return at::dropout(call(middle, call(middle, a, b).sin(), b), 0.3, true);
    };
    call(outer, x, w).square().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Checkpoint, OfAGraphThatIsRetained) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4}), w = leaf({4, 4});
    const auto y = call([](const at::Tensor& a, const at::Tensor& b) { return at::dropout(layer(a, b), 0.5, true).exp(); }, x, w);
    y.sum().backward({}, /*retain_graph=*/true);
    log.show("first", {x.grad(), w.grad()});
    y.square().sum().backward({}, /*retain_graph=*/true);
    log.show("second", {x.grad(), w.grad()});
    y.sum().backward();
    log.show("third", {x.grad(), w.grad()});
    log.attempt("fourth", [&] { y.sum().backward(); });
  });
}

TEST(Checkpoint, GivesSomeGradientsOnly) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4}), w = leaf({4, 4});
    const auto [a, b] = call([](const at::Tensor& p, const at::Tensor& q) { return std::tuple(layer(p, q).exp(), p.sin().exp()); }, x, w);
    const auto loss = (a + b).sum();
    log.show("of w", torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true));
    log.show("of x", torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true));
    log.show("of x by b", torch::autograd::grad({b.sum()}, {x}));
  });
}

TEST(Checkpoint, SecondDerivatives) {
  expect_same_with_checkpoints(
      2,
      [](Log& log, int, const Checkpoints& call) {
        const auto x = leaf({3, 4}), w = leaf({4, 4});
        const auto y = call([](const at::Tensor& a, const at::Tensor& b) { return layer(layer(a, b), b).exp(); }, x, w);
        const auto first = torch::autograd::grad({y.sum()}, {x, w}, {}, /*retain_graph=*/true, /*create_graph=*/true);
        log.show("first", first);
        (first[0].square().sum() + first[1].sin().sum()).backward();
        log.show("second", {x.grad(), w.grad()});
      },
      Takeover::Any);
}

TEST(Checkpoint, OfInputsThatNeedNoGradient) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = torch::randn({3, 4}), w = leaf({4, 4});
    const auto index = torch::tensor({2, 0});
    const auto y =
        call([w](const at::Tensor& a, const at::Tensor& i, int64_t n) { return layer(a, w).index_select(0, i).exp().narrow(1, 0, n); }, x,
             index, int64_t{2});
    y.sum().backward();
    log.show("w.grad", w.grad());
  });
}

TEST(Checkpoint, WithoutGradModeIsTheFunction) {
  const at::NoGradGuard no_grad;
  const auto x = leaf({3});
  int runs = 0;
  const auto y = checkpoint([&](const at::Tensor& a) { return ++runs, a.sin().exp(); }, x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(runs, 1);
}

TEST(Checkpoint, OfViewsAndWrites) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4});
    const auto y = call(
        [](const at::Tensor& a) {
          auto own = a.exp().t().contiguous();
          own.select(0, 1).mul_(2);
          own[2] = a.select(0, 0).narrow(0, 0, 3).sin();
          own.relu_();
          return own.clone().exp();
        },
        x);
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

struct Squared : torch::autograd::Function<Squared> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const auto y = x * x;
    context->save_for_backward({x, y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto again = context->get_saved_variables();  // each call requests the saved tensors
    return {grads[0] * 2 * saved[0] + 0 * again[1]};
  }
};

TEST(Checkpoint, OfACustomFunction) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4});
    call([](const at::Tensor& a) { return Squared::apply(a.sin()).exp(); }, x).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Checkpoint, HooksOfTheFunctionsTensorsAreCalledOnce) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4});
    x.register_hook([&](const at::Tensor& grad) { log.show("gradient of x", grad); });
    const auto y = call(
        [&](const at::Tensor& a) {
          const auto b = a.sin();
          b.register_hook([&](const at::Tensor& grad) { return log.show("gradient of b", grad), grad * 2; });
          return b.exp();
        },
        x);
    y.register_hook([&](const at::Tensor& grad) { log.show("gradient of y", grad); });
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Checkpoint, RunsABackwardOfItsOwn) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4}), w = leaf({4, 4});
    const auto function = [](const at::Tensor& a, const at::Tensor& b) {
      const auto y = layer(a, b).exp();
      const auto of_a = torch::autograd::grad({y.sum()}, {a}, {}, /*retain_graph=*/false, /*create_graph=*/false)[0];
      return a.cos() * of_a;
    };
    call(function, x, w).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Checkpoint, AutocastIsThatOfTheForward) {
  expect_same_with_checkpoints(3, [](Log& log, int step, const Checkpoints& call) {
    const auto x = leaf({3, 4}), w = leaf({4, 4});
    const auto before = at::autocast::get_autocast_dtype(at::kCPU);
    at::autocast::set_autocast_enabled(at::kCPU, step != 1);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
    const auto y = call([](const at::Tensor& a, const at::Tensor& b) { return layer(layer(a, b), b).to(at::kFloat).exp(); }, x, w);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, before);
    y.sum().backward();
    log.show("grads", {x.grad(), w.grad()});
    log.note(at::autocast::is_autocast_enabled(at::kCPU) ? "autocast is on" : "autocast is off");
  });
}

// A child runs a backward whose forward ran in its parent.
TEST(Checkpoint, SurvivesAFork) {
  const auto x = leaf({3, 4});
  const auto guard = hindcast::enable();
  const auto loss = [&] { return checkpoint([](const at::Tensor& a) { return at::dropout(a.sin(), 0.5, true).exp(); }, x).sum(); };
  at::manual_seed(3);
  const auto first = loss();
  at::manual_seed(3);
  const auto second = loss();
  first.backward();
  const auto expected = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    second.backward();
    _exit(x.grad().equal(expected) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// What a program saves may change from call to call; what a checkpoint saves may not.
TEST(Checkpoint, OfACompiledFunctionRunsItAsItIs) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  const auto compiled = aot_function([](const at::Tensor& a, const at::Tensor& b) { return layer(layer(a, b), b).exp(); }, options);
  const auto x = leaf({3, 4}), w = leaf({4, 4});
  const auto gradients = [&](auto&& function) {
    x.mutable_grad() = w.mutable_grad() = at::Tensor();
    function(x, w).square().sum().backward();
    return std::vector{x.grad(), w.grad()};
  };
  const auto expected = gradients([](const auto& a, const auto& b) { return layer(layer(a, b), b).exp(); });
  const auto in_a_checkpoint = [&](const auto& a, const auto& b) {
    return checkpoint([&](const at::Tensor& p, const at::Tensor& q) { return compiled(p, q); }, a, b);
  };
  for (int i = 0; i < 3; ++i) {
    const auto inside = gradients(in_a_checkpoint), outside = gradients(compiled);
    for (int k = 0; k < 2; ++k) EXPECT_TRUE(inside[k].equal(expected[k]) && outside[k].equal(expected[k])) << i;
  }
  EXPECT_EQ(compiled.stats().eager, 6U);  // three forwards and three recomputations
  EXPECT_EQ(compiled.stats().hits, 2U);
}

// The trace goes through it: the partition decides what is saved.
TEST(Checkpoint, InACompiledFunctionIsAPartOfTheProgram) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  int runs = 0;
  const auto function = [&](const at::Tensor& a, const at::Tensor& b) {
    const auto block = [&](const at::Tensor& p, const at::Tensor& q) { return ++runs, layer(p, q).exp(); };
    return checkpoint(block, checkpoint(block, a, b), b);
  };
  const auto compiled = aot_function(function, options);
  const auto x = leaf({3, 4}), w = leaf({4, 4});
  const auto gradients = [&](auto&& call) {
    x.mutable_grad() = w.mutable_grad() = at::Tensor();
    call(x, w).square().sum().backward();
    return std::vector{x.grad(), w.grad()};
  };
  const auto expected = gradients(function);
  EXPECT_EQ(runs, 4);
  for (int i = 0; i < 3; ++i) {
    const auto given = gradients(compiled);
    EXPECT_TRUE(given[0].equal(expected[0]) && given[1].equal(expected[1])) << i;
    EXPECT_EQ(runs, 6);
  }
  EXPECT_EQ(compiled.stats().traces, 1U);
  EXPECT_EQ(compiled.stats().hits, 2U);
  // Nor does a backward with create_graph run it again.
  const auto first = torch::autograd::grad({compiled(x, w).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  EXPECT_TRUE(first.requires_grad());
  EXPECT_EQ(runs, 6);
}

}  // namespace
}  // namespace hindcast::tests
