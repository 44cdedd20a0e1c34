// Formulas of autograd that depend on values: compiled, and correct for any values.

#include "tests/engine/aot/aot_grads.h"

#include <limits>
#include <optional>

namespace hindcast::tests::whole_formulas_test {
namespace {

using Function = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor gradient(const Function& f, const at::Tensor& x) {
  const auto leaf = x.clone().requires_grad_();
  return torch::autograd::grad({(f(leaf) * 3).sum()}, {leaf})[0];
}

// Without zeros, with one zero in a row, with several; ties; NaN.
std::vector<at::Tensor> values() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return {torch::rand({3, 4}) + 0.5,
          torch::tensor({{0.F, 1.F, 2.F, 3.F}, {4.F, 5.F, 6.F, 7.F}, {8.F, 9.F, 1.F, 2.F}}),
          torch::tensor({{0.F, 1.F, 0.F, 3.F}, {4.F, 0.F, 6.F, 7.F}, {8.F, 9.F, 1.F, 2.F}}),
          torch::zeros({3, 4}),
          torch::ones({3, 4}),
          torch::full({3, 4}, nan),
          torch::tensor({{1.F, nan, 2.F, 3.F}, {4.F, 5.F, 6.F, 7.F}, {8.F, 9.F, 1.F, 2.F}})};
}

const std::vector<std::pair<std::string, Function>> kFormulas = {
    {"prod", [](const at::Tensor& x) { return x.sin().prod(); }},
    {"prod of an argument", [](const at::Tensor& x) { return x.prod(); }},
    {"prod.dim", [](const at::Tensor& x) { return x.prod(1) * 2; }},
    {"prod of prod", [](const at::Tensor& x) { return x.prod(1).prod(); }},
    {"cumprod", [](const at::Tensor& x) { return (x * 2).cumprod(1); }},
    {"max", [](const at::Tensor& x) { return x.max() * x; }},
    {"min", [](const at::Tensor& x) { return (x * 2).min(); }},
    {"median", [](const at::Tensor& x) { return x.median(); }},
    {"nanmedian", [](const at::Tensor& x) { return x.nanmedian(); }},
    {"masked_fill", [](const at::Tensor& x) { return x.masked_fill(x > 1, x.sum()); }},
};

TEST(WholeFormulas, FormulasOfAutogradStayWhole) {
  for (const auto& [name, function] : kFormulas) {
    for (const bool is_guarded : {false, true}) {
      const auto f = aot_function([&](const at::Tensor& x) { return function(x); }, exact_programs());
      uint64_t calls = 0;
      for (int round = 0; round < 2; ++round) {
        for (const at::Tensor& x : values()) {
          const at::Tensor expected = gradient(function, x);
          Options engine;
          engine.compiler = compilers::eager();
          std::optional<Guard> guard;
          if (is_guarded) guard.emplace(enable(engine));
          EXPECT_TRUE(are_equal_with_nan(gradient(std::ref(f), x), expected)) << name << ", call " << calls;
          ++calls;
        }
      }
      EXPECT_EQ(f.stats().hits, calls - 1) << name;
    }
  }
}

TEST(WholeFormulas, FormulasServeOtherSizes) {
  for (const auto& [name, function] : kFormulas) {
    const auto f = aot_function([&](const at::Tensor& x) { return function(x); }, exact_programs());
    for (const int64_t n : {2, 3, 5, 6, 7, 2, 3, 5}) {
      const auto x = torch::rand({n, 4});
      EXPECT_TRUE(are_equal_with_nan(gradient(std::ref(f), x), gradient(function, x))) << name << ", size " << n;
    }
    EXPECT_EQ(f.stats().eager, 0U) << name;
    if (name != "masked_fill") EXPECT_LE(f.stats().traces, 2U) << name;  // its mask compares with a number
  }
}

TEST(WholeFormulas, FormulasHaveSecondDerivatives) {
  for (const auto& [name, function] : kFormulas) {
    const auto f = aot_function([&](const at::Tensor& x) { return function(x); }, exact_programs());
    const auto second = [](const Function& g, const at::Tensor& x) {
      const auto leaf = x.clone().requires_grad_();
      const auto first = torch::autograd::grad({g(leaf).pow(2).sum()}, {leaf}, {}, true, /*create_graph=*/true)[0];
      return torch::autograd::grad({first.sin().sum()}, {leaf})[0];
    };
    for (int call = 0; call < 3; ++call) {
      const auto x = torch::rand({3, 4}, at::kDouble) + 0.5;  // in float32, cancellation exceeds the tolerance in one of 100 runs
      EXPECT_TRUE(second(std::ref(f), x).allclose(second(function, x))) << name;
    }
  }
}

}  // namespace
}  // namespace hindcast::tests::whole_formulas_test
