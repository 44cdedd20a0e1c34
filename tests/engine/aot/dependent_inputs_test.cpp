// Arguments that were computed from other arguments outside of the function, and tensors that are passed twice.

#include <hindcast/aot.h>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <functional>
#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;
using MakeInputs = std::function<Tensors(const at::Tensor& leaf)>;

Tensors gradients_of(const at::Tensor& loss, const Tensors& inputs, bool create_graph = true) {
  return torch::autograd::grad({loss}, inputs, {}, /*retain_graph=*/true, create_graph);
}

// x * h by x, and the loss.
Tensors by_first(const Tensors& in) {
  const at::Tensor loss = (in[0] * in[1]).sin().sum();
  return {gradients_of(loss, {in[0]})[0], loss};
}

Tensors independent(const at::Tensor& leaf) { return {leaf, at::linspace(-1, 2, leaf.numel()).set_requires_grad(true)}; }
Tensors of_a_leaf(const at::Tensor& leaf) { return {leaf, (leaf * 2).sin()}; }
Tensors of_a_result(const at::Tensor& leaf) {
  const at::Tensor x = leaf * 3;
  return {x, (x * 2).sin()};
}
Tensors view_of_it(const at::Tensor& leaf) { return {leaf, leaf.view({-1})}; }
Tensors twice(const at::Tensor& leaf) { return {leaf, leaf}; }
Tensors halves(const at::Tensor& leaf) {  // two results of one node
  const auto both = (at::cat({leaf, leaf}) * 2).chunk(2);
  return {both[0], both[1]};
}

/// The results, and the gradient of the leaf that all inputs were computed from.
Tensors call(const Function& function, const MakeInputs& make, int number) {
  const at::Tensor leaf = (at::linspace(0.1, 1.9, 6) + 0.05 * number).set_requires_grad(true);
  Tensors results = function(make(leaf));
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& result : results) {
    if (result.requires_grad()) sum = sum + result.cos().sum();
  }
  if (sum.requires_grad()) sum.backward();
  results.push_back(leaf.grad());
  return results;
}

void expect_equal(const Tensors& given, const Tensors& expected, const std::string& what) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) {
    ASSERT_EQ(given[i].defined(), expected[i].defined()) << what << ", result " << i;
    if (given[i].defined()) EXPECT_TRUE(at::allclose(given[i], expected[i], 1e-5, 1e-6)) << what << ", result " << i;
  }
}

AotOptions now() {
  AotOptions options;
  options.async = false;
  options.check_every = 0;
  return options;
}

/// The calls, in order, are eager's.
AotStats expect_eagers(const Function& eager, const std::vector<MakeInputs>& calls) {
  const auto function = aot_function(eager, now());
  for (size_t i = 0; i < calls.size(); ++i) {
    const int number = static_cast<int>(i);
    expect_equal(call(function, calls[i], number), call(eager, calls[i], number), "call " + std::to_string(i));
  }
  return function.stats();
}

TEST(DependentInputs, AreInAGradientThatTheFunctionTakes) {
  for (const MakeInputs& make : {of_a_leaf, of_a_result, view_of_it, twice, halves}) expect_eagers(by_first, {make, make, make, make});
}

TEST(DependentInputs, AreFoundInACallOfAKnownProgram) {
  const AotStats stats =
      expect_eagers(by_first, {independent, independent, of_a_leaf, independent, view_of_it, twice, independent, of_a_leaf, independent});
  EXPECT_GE(stats.hits, 3) << "independent ones keep their program";
}

TEST(DependentInputs, MayFollowOneAnother) {
  const Function by_two = [](const Tensors& in) {
    const at::Tensor loss = (in[0] * in[1] * in[2]).sin().sum();
    return gradients_of(loss, {in[0], in[1]});
  };
  const auto chain = [](const at::Tensor& leaf) {
    const at::Tensor x = leaf.exp(), next = x.sin();
    return Tensors{x, next, next * x};
  };
  const auto chain_of_a_leaf = [](const at::Tensor& leaf) {
    const at::Tensor next = leaf.sin();
    return Tensors{leaf, next, next * leaf};
  };
  expect_eagers(by_two, {chain, chain, chain});
  expect_eagers(by_two, {chain_of_a_leaf, chain_of_a_leaf, chain_of_a_leaf});
}

TEST(DependentInputs, AreCompiledWithoutSuchAGradient) {
  const Function eager = [](const Tensors& in) { return Tensors{(in[0] * in[1]).sin() + in[0], in[1] * 2}; };
  for (const MakeInputs& make : {of_a_leaf, of_a_result, view_of_it, twice, halves}) {
    const AotStats stats = expect_eagers(eager, {make, make, make, make});
    EXPECT_GE(stats.hits, 2) << "the first call may run eagerly: it shows whether the function writes to overlapping arguments";
  }
  const AotStats stats = expect_eagers(eager, {of_a_leaf, independent, of_a_result, independent, of_a_leaf, twice, independent});
  EXPECT_GE(stats.hits, 3);
}

TEST(DependentInputs, MayBeReturned) {
  const Function eager = [](const Tensors& in) { return Tensors{in[0], in[1].view({2, 3}), in[0] * in[1], in[0].view({3, 2})}; };
  for (const MakeInputs& make : {of_a_leaf, of_a_result, view_of_it, twice, halves}) expect_eagers(eager, {make, make, make});
}

TEST(DependentInputs, KeepTheHooksThatTheFunctionRegisters) {
  const Function eager = [](const Tensors& in) {
    in[0].register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    return Tensors{in[0] * in[1]};
  };
  for (const MakeInputs& make : {independent, of_a_leaf, of_a_result, view_of_it, twice}) expect_eagers(eager, {make, make, make});
}

TEST(DependentInputs, TakeABackwardInTheFunction) {
  const Function eager = [](const Tensors& in) {
    (in[0] * in[1]).sin().sum().backward({}, /*retain_graph=*/true);
    return Tensors{in[0] * 2};
  };
  for (const MakeInputs& make : {independent, of_a_leaf, of_a_result, view_of_it, twice, halves}) expect_eagers(eager, {make, make, make});
  const Function of_one = [](const Tensors& in) {
    in[0].sin().sum().backward({}, /*retain_graph=*/true);
    return Tensors{in[1] * 2};
  };
  for (const MakeInputs& make : {independent, of_a_leaf, of_a_result, view_of_it, twice, halves}) expect_eagers(of_one, {make, make, make});
}

TEST(DependentInputs, MayComeFromATensorThatTheFunctionReads) {
  const at::Tensor weight = at::linspace(-1, 1, 6).set_requires_grad(true);
  const Function eager = [weight](const Tensors& in) {
    const at::Tensor loss = (in[0] * in[1] * weight).sin().sum();
    return gradients_of(loss, {weight});
  };
  const auto of_weight = [weight](const at::Tensor& leaf) { return Tensors{leaf, weight * leaf}; };
  expect_eagers(eager, {of_weight, of_weight, of_weight});
  expect_eagers(eager, {independent, of_weight, independent, of_weight});
}

TEST(DependentInputs, LeaveAnIntegratorCompiled) {
  const at::Tensor weight = at::linspace(0.5, 1, 6).set_requires_grad(true);
  const Function step = [](const Tensors& in) {
    const at::Tensor energy = (in[0].sin() * in[1]).sum();
    return Tensors{in[0] - 0.1 * gradients_of(energy, {in[0]})[0]};
  };
  const auto function = aot_function(step, now());
  const auto trajectory = [&](const auto& one_step) {
    weight.mutable_grad() = at::Tensor();
    at::Tensor x = at::linspace(-1, 1, 6).set_requires_grad(true) * 1;
    for (int i = 0; i < 8; ++i) x = one_step(Tensors{x, weight})[0];
    x.square().sum().backward();
    return Tensors{x.detach(), weight.grad()};
  };
  for (int i = 0; i < 3; ++i) expect_equal(trajectory(function), trajectory(step), "trajectory " + std::to_string(i));
  EXPECT_GE(function.stats().hits, 14) << "x depends on the weight, whose gradient the function does not take";
}

TEST(DependentInputs, MayAlsoBeReadFromOutside) {
  const at::Tensor weight = at::linspace(-1, 1, 6).set_requires_grad(true);
  const Function of_argument = [weight](const Tensors& in) { return gradients_of((in[0] * weight).sin().sum(), {in[0]}); };
  const Function of_weight = [weight](const Tensors& in) { return gradients_of((in[0] * weight).sin().sum(), {weight}); };
  const auto other = [](const at::Tensor& leaf) { return Tensors{leaf}; };
  const auto itself = [weight](const at::Tensor&) { return Tensors{weight}; };
  for (const Function& eager : {of_argument, of_weight}) {
    expect_eagers(eager, {other, itself, other, itself});
    expect_eagers(eager, {itself, other, itself, other});
  }
}

TEST(DependentInputs, MayBeUnusedInTheTrace) {
  const Function eager = [](const Tensors& in) {
    const auto found = torch::autograd::grad({(in[1] * in[1]).sum()}, {in[0]}, {}, true, true, /*allow_unused=*/true);
    return Tensors{found[0].defined() ? found[0] * in[1] : in[1] * 1};
  };
  expect_eagers(eager, {independent, independent, of_a_result, of_a_leaf, independent, view_of_it});
}

TEST(DependentInputs, MayFollowOneAnotherBesideTheLoss) {
  const Function eager = [](const Tensors& in) {
    const at::Tensor gradient = gradients_of((in[0] * in[1]).sum(), {in[0]})[0];
    return Tensors{gradient * in[0], in[2] * 2};
  };
  const auto chain = [](const at::Tensor& leaf) {
    const at::Tensor x = leaf * 2, next = x + x;
    return Tensors{x, next, next.flip(0)};
  };
  const auto apart = [](const at::Tensor& leaf) { return Tensors{leaf * 2, leaf.detach().clone().set_requires_grad(true) * 3, leaf * 1}; };
  expect_eagers(eager, {chain, apart, apart, chain, apart, apart});
}

TEST(DependentInputs, KeepHooksInGradientsThatTheFunctionTakes) {
  const Function own_hook = [](const Tensors& in) {
    in[0].register_hook([](const at::Tensor& gradient) { return gradient * 1.5; });
    return gradients_of((in[0] * in[1]).sum(), {in[0]});
  };
  for (const MakeInputs& make : {independent, of_a_leaf, of_a_result, view_of_it, twice}) expect_eagers(own_hook, {make, make, make});
  const auto hooked = [](const MakeInputs& make) {
    return MakeInputs([make](const at::Tensor& leaf) {
      const Tensors inputs = make(leaf);
      inputs[0].register_hook([](const at::Tensor& gradient) { return gradient * 10; });
      return inputs;
    });
  };
  for (const MakeInputs& make : {independent, of_a_leaf, of_a_result}) {
    expect_eagers(by_first, {hooked(make), hooked(make), hooked(make)});
    expect_eagers(by_first, {make, make, hooked(make), make});
  }
}

TEST(RepeatedInputs, SeeTheFunctionsWrites) {
  const Function eager = [](const Tensors& in) {
    in[0].mul_(2);
    return Tensors{in[1] + 1};
  };
  const auto plain = [](const at::Tensor& leaf) {
    const at::Tensor x = leaf.detach().clone();
    return Tensors{x, x};
  };
  const AotStats stats = expect_eagers(eager, {plain, plain, plain});
  EXPECT_EQ(stats.hits, 2);
}

}  // namespace
}  // namespace hindcast::tests
