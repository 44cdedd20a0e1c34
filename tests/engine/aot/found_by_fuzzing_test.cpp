// Found by random programs with functions (tests/whole/fuzz/functions_test.cpp), each reduced.

#include <hindcast/aot.h>
#include <hindcast/hindcast.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace hindcast::tests::found_by_fuzzing_test {
namespace {

using Tensors = std::vector<at::Tensor>;

AotOptions exact() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  options.async = false;
  return options;
}

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }

// One input is computed from the other: gradients through that history were counted twice when the function was run again.
TEST(AotFoundByFuzzing, GradientsOfGradientsWhereOneInputMadeAnother) {
  const auto function = [](const at::Tensor& a, const at::Tensor& b) { return a.sin() * b.exp(); };
  const auto f = aot_function(function, exact());
  const auto x = leaf({3});
  const auto gradients = [&](auto&& call) {
    const at::Tensor first = torch::autograd::grad({call(x, x * x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return Tensors{first, torch::autograd::grad({first.square().sum()}, {x})[0]};
  };
  for (int call = 0; call < 3; ++call) {
    const Tensors given = gradients(f), expected = gradients(function);
    EXPECT_TRUE(given[0].allclose(expected[0]));
    EXPECT_TRUE(given[1].allclose(expected[1]));
  }
}

TEST(AotFoundByFuzzing, GradientsOfGradientsOfTensorsFromOutsideCallHooksOnce) {
  const auto w = leaf({3}), x = leaf({3});
  const at::Tensor made = w * 2;  // from outside, with a history that leads to another tensor from outside
  int calls = 0;
  w.register_hook([&](const at::Tensor&) { ++calls; });
  const auto function = [&](const at::Tensor& a) { return a.sin() * made * w; };
  const auto f = aot_function(function, exact());
  const auto gradient = [&](auto&& call) {
    w.mutable_grad() = x.mutable_grad() = at::Tensor();
    calls = 0;
    torch::autograd::backward({call(x).sum()}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    EXPECT_EQ(calls, 1);
    return w.grad().detach();
  };
  const at::Tensor expected = gradient(function);
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(gradient(f).allclose(expected));
  w.mutable_grad() = x.mutable_grad() = at::Tensor();
}

TEST(AotFoundByFuzzing, AViewOfAnArgumentWithoutGradientMayBeWrittenTo) {
  const auto f = aot_function([](const at::Tensor& a) { return a.select(0, 1); }, exact());
  const auto w = leaf({3});
  for (int call = 0; call < 3; ++call) {
    const auto x = torch::ones({2, 3});
    at::Tensor row = f(x);
    row.mul_(w);
    EXPECT_TRUE(x.requires_grad());
    EXPECT_TRUE(torch::autograd::grad({x.sum()}, {w})[0].equal(torch::ones({3})));
  }
}

TEST(AotFoundByFuzzing, AnArgumentThatNoResultDependsOnHasNoGradient) {
  const auto f = aot_function([](const at::Tensor& a, const at::Tensor& b) { return Tensors{a.sin(), (b * b).detach()}; }, exact());
  const auto a = leaf({3}), b = leaf({3});
  b.register_hook([](const at::Tensor&) { ADD_FAILURE() << "b is in no graph"; });
  for (int call = 0; call < 3; ++call) f(a, b)[0].sum().backward();
  EXPECT_FALSE(b.grad().defined());
  EXPECT_EQ(f.stats().hits, 2U);
}

TEST(AotFoundByFuzzing, RandomNumbersThatNobodyReadsAreDrawn) {
  AotOptions options = exact();
  options.fw_compiler = options.bw_compiler = compilers::fused_through_aten();
  options.fallback_random = true;
  const auto function = [](const at::Tensor& a) {
    (void)at::dropout(a, 0.5, true);
    return a * 2;
  };
  const auto f = aot_function(function, options);
  const auto a = torch::randn({3, 4});
  torch::manual_seed(1);
  function(a);
  const at::Tensor expected = torch::rand({2});
  for (int call = 0; call < 3; ++call) {
    torch::manual_seed(1);
    f(a);
    EXPECT_TRUE(torch::rand({2}).equal(expected)) << call;
  }
}

// The program for another set of gradients was traced with the sizes of the first call.
TEST(AotFoundByFuzzing, OtherSetsOfGradientsWhenSizesComeBack) {
  const auto f = aot_function([](const at::Tensor& a, const at::Tensor& b) { return Tensors{a.sum(0), b.sum(0, true)}; }, exact());
  const auto b = leaf({3, 4});
  for (const int64_t rows : {2, 3, 2, 5, 3, 2}) {
    const auto a = leaf({rows, 3});
    const Tensors results = f(a, b);
    torch::autograd::backward({results[0].sum()}, {}, /*retain_graph=*/true);
    results[1].sum().backward();
    EXPECT_TRUE(a.grad().equal(torch::ones({rows, 3}))) << rows;
  }
}

TEST(AotFoundByFuzzing, OneViewTwiceIsOneTensor) {
  const auto f = aot_function(
      [](const at::Tensor& a) {
        const at::Tensor view = a.select(0, 0);
        return Tensors{view, view.conj()};  // conj of what is real is the same tensor
      },
      exact());
  for (int call = 0; call < 3; ++call) {
    const Tensors views = f(leaf({2, 3}));
    EXPECT_TRUE(views[0].is_same(views[1]));
  }
}

TEST(AotFoundByFuzzing, HooksOnAnArgumentAndOnItsViewsAreSeen) {
  int calls = 0;
  const auto count = [&](const at::Tensor&) { ++calls; };
  const auto on_argument = aot_function(
      [&](const at::Tensor& a, const at::Tensor& b) {
        a.register_hook(count);
        return b * 2;
      },
      exact());
  const auto on_view = aot_function(
      [&](const at::Tensor& a) {
        const at::Tensor view = a.select(0, 0);
        view.register_hook(count);
        return view;
      },
      exact());
  for (int call = 0; call < 3; ++call) {
    const auto a = leaf({2, 3}), b = leaf({3});
    calls = 0;
    const at::Tensor twice = on_argument(a, b);
    (a.sum() + twice.sum() + on_view(a).sum()).backward();
    EXPECT_EQ(calls, 2) << call;
  }
  EXPECT_EQ(on_argument.stats().eager + on_view.stats().eager, 6U);
}

// The history of a write to a view has its edges twice.
TEST(AotFoundByFuzzing, AWriteToAViewReadsATensorFromOutside) {
  const auto w = leaf({3});
  const auto function = [&](const at::Tensor& a) {
    at::Tensor own = a * 1;
    own.select(0, 0).mul_(w);
    return own;
  };
  const auto f = aot_function(function, exact());
  const auto a = leaf({2, 3});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor given = torch::autograd::grad({f(a).square().sum()}, {w})[0];
    EXPECT_TRUE(given.equal(torch::autograd::grad({function(a).square().sum()}, {w})[0]));
  }
  EXPECT_EQ(f.stats().hits, 2U);
}

}  // namespace
}  // namespace hindcast::tests::found_by_fuzzing_test
