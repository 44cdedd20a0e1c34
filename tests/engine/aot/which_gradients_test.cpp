// Functions of several results, of which different ones get a gradient each time: as those of an actor and a critic that share a network.

#include <gtest/gtest.h>
#include <hindcast/aot.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <ATen/record_function.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;

// Only the first result uses the third weight, only the second the fourth.
Tensors network(const at::Tensor& x, const at::Tensor& shared, const at::Tensor& policy, const at::Tensor& value) {
  const at::Tensor hidden = x.mm(shared).tanh();
  return {hidden.mm(policy).softmax(1), hidden.mm(value).tanh(), hidden.square()};
}

Tensors weights_of(uint64_t seed) {
  at::manual_seed(seed);
  Tensors weights = {at::randn({7, 5}), at::randn({5, 8}), at::randn({8, 3}), at::randn({8, 1})};
  for (size_t i = 1; i < weights.size(); ++i) weights[i].requires_grad_();
  return weights;
}

AotOptions options_with(const Compiler& compiler) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compiler;
  options.partition = partition::min_cut;
  options.async = false;
  return options;
}

void expect_same(const Tensors& ours, const Tensors& stock) {
  for (size_t i = 1; i < stock.size(); ++i) {
    ASSERT_EQ(ours[i].grad().defined(), stock[i].grad().defined()) << i;
    if (!stock[i].grad().defined()) continue;
    EXPECT_TRUE(at::allclose(ours[i].grad(), stock[i].grad(), 1e-4, 1e-6)) << i << (ours[i].grad() - stock[i].grad()).abs().max();
  }
}

class WhichGradients : public testing::TestWithParam<bool> {};

// One backward per step, through the results that a mask selects, different ones each time.
TEST_P(WhichGradients, AlternateInEachStep) {
  const auto compiled = aot_function(network, options_with(compilers::fused()));
  const Tensors ours = weights_of(1), stock = weights_of(1);
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(enable());
  for (int step = 0; step < 40; ++step) {
    const int mask = std::vector<int>{1, 2, 1, 2, 5, 3, 4, 6, 7}[static_cast<size_t>(step) % 9];
    SCOPED_TRACE(std::to_string(step) + ": " + std::to_string(mask));
    const auto run = [&](const auto& function, const Tensors& weights) {
      for (const at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
      const Tensors results = function(weights[0], weights[1], weights[2], weights[3]);
      at::Tensor loss = at::zeros({});
      for (size_t i = 0; i < 3; ++i) {
        if ((mask >> i & 1) != 0) loss = loss + (results[i] * results[i].sin()).sum();
      }
      loss.backward();
    };
    run(compiled, ours);
    run(network, stock);
    expect_same(ours, stock);
  }
  EXPECT_EQ(compiled.core().programs().size(), 7u) << "one for each set";
  EXPECT_EQ(compiled.stats().traces, 1u);
}

size_t tanh_backwards = 0;

std::unique_ptr<at::ObserverContext> count_tanh_backward(const at::RecordFunction& call) {
  if (std::string(call.name()) == "TanhBackward0") ++tanh_backwards;
  return nullptr;
}

// The program for gradients of all results and the one for those of this call come from one recording.
TEST_P(WhichGradients, TheFirstBackwardRunsEachFormulaOnce) {
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(enable());
  const auto callback =
      at::addThreadLocalCallback(at::RecordFunctionCallback(count_tanh_backward).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  for (const auto& result : {0U, 1U, 2U}) {
    const auto compiled = aot_function(network, options_with(compilers::fused()));
    const Tensors weights = weights_of(1);
    tanh_backwards = 0;
    compiled(weights[0], weights[1], weights[2], weights[3])[result].square().sum().backward();
    EXPECT_EQ(tanh_backwards, 2U) << result << ": one of hidden, one of the second result";
  }
  at::removeCallback(callback);
}

// Two backwards per step through one graph, the second through what the first did not need.
TEST_P(WhichGradients, ComeOneAfterTheOther) {
  const auto compiled = aot_function(network, options_with(compilers::fused()));
  const Tensors ours = weights_of(2), stock = weights_of(2);
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(enable());
  for (int step = 0; step < 12; ++step) {
    SCOPED_TRACE(step);
    const auto run = [&](const auto& function, const Tensors& weights) {
      for (const at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
      const Tensors results = function(weights[0], weights[1], weights[2], weights[3]);
      results[0].log().sum().backward({}, /*retain_graph=*/true);
      weights[2].mutable_grad() = at::Tensor();
      results[1].square().sum().backward();
    };
    run(compiled, ours);
    run(network, stock);
    expect_same(ours, stock);
    EXPECT_FALSE(ours[2].grad().defined()) << "nothing flowed into it since it was cleared";
  }
  EXPECT_EQ(compiled.core().programs().size(), 2u);
}

// The function runs once, in the traced call, whichever gradients are requested later.
TEST_P(WhichGradients, NeverRunTheFunctionAgain) {
  int runs = 0;
  const auto counted = [&](const at::Tensor& x, const at::Tensor& shared, const at::Tensor& policy, const at::Tensor& value) {
    ++runs;
    return network(x, shared, policy, value);
  };
  const auto compiled = aot_function(counted, options_with(compilers::fused()));
  const Tensors ours = weights_of(3);
  for (int phase = 0; phase < 6; ++phase) {
    for (int step = 0; step < 10; ++step)
      compiled(ours[0], ours[1], ours[2], ours[3])[static_cast<size_t>(phase % 2)].square().sum().backward();
  }
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(compiled.stats().hits, 59u);
}

// Where no gradient flows in, nothing is computed: zero times an infinite slope would be NaN.
void expect_same_at_infinite_slopes(const AotOptions& options, const std::vector<int>& masks, bool create_graph) {
  const auto function = [](const at::Tensor& x) {
    const at::Tensor squared = x * x;
    return Tensors{x.log(), x * 2, squared.sin() + x.sqrt(), x.prod() + x.norm(3)};
  };
  const auto compiled = aot_function(function, options);
  for (size_t step = 0; step < masks.size(); ++step) {
    SCOPED_TRACE(std::to_string(step) + ": " + std::to_string(masks[step]));
    const auto gradient_of = [&](const auto& f) {
      const at::Tensor x = at::linspace(0, 1, 5).requires_grad_();
      const Tensors results = f(x);
      at::Tensor loss;
      for (size_t i = 0; i < results.size(); ++i) {
        if ((masks[step] >> i & 1) != 0) loss = loss.defined() ? loss + results[i].sum() : results[i].sum();
      }
      if (!loss.defined()) return at::Tensor();
      return torch::autograd::grad({loss}, {x}, {}, std::nullopt, create_graph)[0].detach();
    };
    const at::Tensor ours = gradient_of(compiled), stock = gradient_of(function);
    if (stock.defined()) EXPECT_TRUE(at::allclose(ours, stock, 1e-5, 1e-6, /*equal_nan=*/true)) << ours << stock;
  }
  EXPECT_EQ(compiled.stats().eager, 0u);
}

TEST_P(WhichGradients, SlopesThatAreInfinite) {
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(enable());
  const AotOptions min_cut = options_with(compilers::fused());
  AotOptions standard = options_with(compilers::eager());
  standard.partition = partition::standard;
  for (const AotOptions& options : {min_cut, standard}) {
    for (const std::vector<int>& masks :
         {std::vector<int>{15, 2, 4, 6, 8, 10, 1, 2}, {1, 2, 6, 8, 1, 10}, {2, 1, 4, 8, 2}, {0, 0, 0, 2, 4, 10, 15, 8}}) {
      expect_same_at_infinite_slopes(options, masks, false);
      expect_same_at_infinite_slopes(options, masks, true);
    }
  }
}

// One node has both results. Its formula gets zeros for an undefined gradient, as from LibTorch.
struct Both : torch::autograd::Function<Both> {
  static constexpr bool is_traceable = true;
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return {x * 2, x.exp()};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& gradients) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    return {gradients[0] * 2 + gradients[1].cos() * x + at::cat({gradients[0], gradients[1]}).sum()};
  }
};

TEST_P(WhichGradients, OfOneFormulaThatIsNotLinear) {
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(enable());
  const auto function = [](const at::Tensor& x) {
    const Tensors both = Both::apply(x.sin());
    return Tensors{both[0], both[1], x.log()};
  };
  const auto compiled = aot_function(function, options_with(compilers::fused()));
  for (const int mask : {7, 1, 2, 3, 4, 5, 6, 1, 2}) {
    SCOPED_TRACE(mask);
    const auto gradient_of = [&](const auto& f) {
      const at::Tensor x = at::linspace(0, 1, 5).requires_grad_();
      const Tensors results = f(x);
      at::Tensor loss = at::zeros({});
      for (size_t i = 0; i < results.size(); ++i) {
        if ((mask >> i & 1) != 0) loss = loss + results[i].sum();
      }
      return torch::autograd::grad({loss}, {x})[0];
    };
    EXPECT_TRUE(at::allclose(gradient_of(compiled), gradient_of(function), 1e-5, 1e-6, /*equal_nan=*/true));
  }
}

// Its forward computes the gradient, and its backward does not read the incoming one.
struct Fused : torch::autograd::Function<Fused> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({2 * x});
    return x.square().sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list&) {
    return {ctx->get_saved_variables()[0]};
  }
};

TEST_P(WhichGradients, OfAFormulaThatDoesNotReadIt) {
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(enable());
  const auto function = [](const at::Tensor& x) { return Tensors{x.sin(), Fused::apply(x.exp())}; };
  for (const std::vector<int>& masks : {std::vector<int>{3, 3, 1, 2, 1, 3}, {1, 2, 3, 1, 2}, {2, 1, 3}}) {
    const auto compiled = aot_function(function, options_with(compilers::fused()));
    for (const int mask : masks) {
      SCOPED_TRACE(mask);
      const auto gradient_of = [&](const auto& f) {
        const at::Tensor x = at::linspace(0, 1, 5).requires_grad_();
        const Tensors results = f(x);
        at::Tensor loss = at::zeros({});
        for (size_t i = 0; i < results.size(); ++i) {
          if ((mask >> i & 1) != 0) loss = loss + results[i].sum();
        }
        return torch::autograd::grad({loss}, {x})[0];
      };
      EXPECT_TRUE(at::allclose(gradient_of(compiled), gradient_of(function)));
    }
  }
}

// Gradients of a transposed tensor are not contiguous.
TEST_P(WhichGradients, OfLayoutsThatAreNotContiguous) {
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(enable());
  const auto function = [](const at::Tensor& x) {
    return Tensors{x.sum(), x.log(), at::layer_norm(x.t(), {2}), std::get<0>(at::std_mean(x.t().expand({2, 4, 2}), 1))};
  };
  const auto compiled = aot_function(function, options_with(compilers::fused()));
  for (const int mask : {15, 15, 1, 3, 4, 8, 12, 5, 9, 1}) {
    SCOPED_TRACE(mask);
    const auto gradient_of = [&](const auto& f) {
      const at::Tensor x = at::linspace(0, 1, 8).view({2, 4}).requires_grad_();
      const Tensors results = f(x);
      at::Tensor loss = at::zeros({});
      for (size_t i = 0; i < results.size(); ++i) {
        if ((mask >> i & 1) != 0) loss = loss + results[i].sin().sum();
      }
      return torch::autograd::grad({loss}, {x})[0];
    };
    EXPECT_TRUE(at::allclose(gradient_of(compiled), gradient_of(function), 1e-4, 1e-5, /*equal_nan=*/true));
  }
}

// A leaf keeps the tensor that it gets if nothing else holds it, and adds later gradients to it in place.
TEST_P(WhichGradients, OfLeavesThatShareMemoryAreAccumulated) {
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(enable());
  const std::vector<std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>> functions = {
      [](const at::Tensor& a, const at::Tensor& b) {
        return a.view({2, 2}) + b;
      },
      [](const at::Tensor& a, const at::Tensor& b) {
        return a.view({2, 2}) + b.t();
      },
      [](const at::Tensor& a, const at::Tensor& b) {
        return at::cat({a, b.view(-1)}) + at::cat({b.view(-1), a});
      },
  };
  for (size_t f = 0; f < functions.size(); ++f) {
    for (const Compiler& compiler : {compilers::fused(), compilers::eager()}) {
      const auto compiled = aot_function(functions[f], options_with(compiler));
      for (int step = 0; step < 4; ++step) {
        SCOPED_TRACE(std::to_string(f) + ", " + std::to_string(step));
        const auto gradients_of = [&](const auto& function) {
          const Tensors leaves = {at::ones({4}).requires_grad_(), at::ones({2, 2}).requires_grad_()};
          for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
            const at::Tensor result = function(leaves[0], leaves[1]);
            (result * at::arange(1., 1. + static_cast<double>(result.numel())).view(result.sizes())).sum().backward();
          }
          return Tensors{leaves[0].grad(), leaves[1].grad()};
        };
        const Tensors ours = gradients_of(compiled), stock = gradients_of(functions[f]);
        for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::equal(ours[i], stock[i])) << ours[i] << stock[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WithGuard, WhichGradients, testing::Bool());

}  // namespace
}  // namespace hindcast::tests
