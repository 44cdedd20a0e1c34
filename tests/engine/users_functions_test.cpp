// What users are told about their own torch::autograd::Functions, and what becomes dynamic in traceable ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/log_capture.h"
#include "tests/support/programs.h"

namespace hindcast::tests::users_functions_test {
namespace {

using testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// Gradients of `steps` steps on the stock engine and under a guard are equal to the bit. Returns the counts under the guard.
Stats same_gradients(int steps, const std::function<at::Tensor(const at::Tensor& x, int step)>& loss, const at::IntArrayRef sizes = {3}) {
  const auto gradients = [&] {
    std::vector<at::Tensor> all;
    for (int i = 0; i < steps; ++i) {
      at::manual_seed(i);
      const auto x = leaf(sizes);
      loss(x, i).backward();
      all.push_back(x.grad());
    }
    return all;
  };
  const auto expected = gradients();
  reset();
  Options options;
  options.compiler = compilers::eager();
  const auto guard = enable(options);
  const auto found = gradients();
  for (int i = 0; i < steps; ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << "step " << i;
  return stats();
}

std::string only_reason(const Stats& stats) { return stats.opaque_reasons.size() == 1 ? stats.opaque_reasons.begin()->second : ""; }

// ---- reasons

struct ReadsMemory : Function<ReadsMemory> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * (grads[0].data_ptr() == nullptr ? 1 : 2)}; }
};

TEST(Reasons, AreOneLine) {
  const LogCapture logs("fallbacks");
  const Stats counts = same_gradients(3, [](const at::Tensor& x, int) { return ReadsMemory::apply(x).sum(); });
  EXPECT_THAT(only_reason(counts), HasSubstr("data pointer"));
  EXPECT_THAT(only_reason(counts), testing::Not(HasSubstr("\n")));
  EXPECT_THAT(logs.text(), testing::Not(HasSubstr("frame #")));
}

template <bool Traceable>
struct InPlace : Function<InPlace<Traceable>> {
  static constexpr bool is_traceable = Traceable;
  static at::Tensor forward(AutogradContext* ctx, at::Tensor x) {
    x.mul_(2);
    ctx->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 2}; }
};

TEST(Reasons, OfAFunctionThatWritesToItsArgument) {
  for (const auto& apply : {InPlace<true>::apply<InPlace<true>, at::Tensor>, InPlace<false>::apply<InPlace<false>, at::Tensor>}) {
    const Stats counts = same_gradients(3, [&](const at::Tensor& x, int) { return apply(x.sin()).sum(); });
    EXPECT_EQ(only_reason(counts), "custom Function that calls mark_dirty(), which LibTorch's visitor refuses");
    EXPECT_EQ(counts.hits, 2U);
  }
}

struct OneOfTwo : Function<OneOfTwo> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x) {
    const auto rounded = x.round();
    ctx->mark_non_differentiable({rounded});
    return {x * 2, rounded};
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 2}; }
};

TEST(Reasons, OfAFunctionWithAResultThatHasNoGradient) {
  const Stats counts = same_gradients(3, [](const at::Tensor& x, int) { return OneOfTwo::apply(x)[0].sum(); });
  EXPECT_EQ(only_reason(counts), "custom Function that calls mark_non_differentiable(), which LibTorch's visitor refuses");
}

struct NotDeclared : Function<NotDeclared> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 2}; }
};

TEST(Reasons, OfAFunctionThatIsNotDeclaredTraceable) {
  const Stats counts = same_gradients(3, [](const at::Tensor& x, int) { return NotDeclared::apply(x).sum(); });
  EXPECT_EQ(only_reason(counts), "custom Function that is not declared traceable");
}

struct Declared : Function<Declared> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) { return {grads[0] * 2 + 0 * ctx->get_saved_variables()[0]}; }
};

// A released node cannot be asked what its class declares.
TEST(Reasons, DoNotOutliveANodeThatWasReleased) {
  const auto x = leaf({3});
  const auto y = Declared::apply(x).sum();
  y.backward();
  reset();
  const auto guard = enable();
  EXPECT_THROW(y.backward(), std::exception);
  reset();
  for (int i = 0; i < 3; ++i) Declared::apply(x).sum().backward();
  EXPECT_THAT(stats().opaque_nodes, testing::IsEmpty()) << stats();
}

// ---- numbers in saved_data

/// The gradient times a saved number: as a Scalar, which may be a symbol, or as a double.
template <bool AsScalar>
struct ScaleBy : Function<ScaleBy<AsScalar>> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double factor, double shift) {
    ctx->saved_data["z"] = int64_t{2};
    ctx->saved_data["shift"] = shift;
    ctx->saved_data["factor"] = factor;
    ctx->saved_data["a"] = std::string("a text");
    return x * factor + shift;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto factor = ctx->saved_data["factor"], shift = ctx->saved_data["shift"];
    const auto n = ctx->saved_data["z"].toInt();
    if constexpr (AsScalar) return {grads[0] * factor.toScalar() - (shift.toScalar() * grads[0]) * n, at::Tensor(), at::Tensor()};
    return {grads[0] * factor.toDouble() - (shift.toDouble() * grads[0]) * n, at::Tensor(), at::Tensor()};
  }
};

TEST(SavedNumbers, ThatChangeBecomeInputs) {
  const Stats counts = same_gradients(
      20, [](const at::Tensor& x, int step) { return ScaleBy<true>::apply(x.sin(), 1 + step * 0.1, 3 - step * 0.7).exp().sum(); });
  EXPECT_EQ(counts.unique_graphs, 2U) << counts;
  EXPECT_EQ(counts.hits, 18U) << counts;
  EXPECT_THAT(counts.opaque_nodes, testing::IsEmpty()) << counts;
}

TEST(SavedNumbers, OneOfTwoChanges) {
  const Stats counts =
      same_gradients(20, [](const at::Tensor& x, int step) { return ScaleBy<true>::apply(x.sin(), 1 + step * 0.1, 0.5).exp().sum(); });
  EXPECT_EQ(counts.unique_graphs, 2U) << counts;
  EXPECT_THAT(counts.opaque_nodes, testing::IsEmpty()) << counts;
}

// The capture cannot follow a plain double.
TEST(SavedNumbers, ThatAreReadAsPlainDoublesLeaveTheNodeToItself) {
  const Stats counts = same_gradients(
      20, [](const at::Tensor& x, int step) { return ScaleBy<false>::apply(x.sin(), 1 + step * 0.1, 3 - step * 0.7).exp().sum(); });
  EXPECT_EQ(counts.unique_graphs, 2U) << counts;
  EXPECT_EQ(counts.hits, 18U) << counts;
  EXPECT_THAT(only_reason(counts), HasSubstr("toScalar()"));
}

TEST(SavedNumbers, SpecialValues) {
  const double values[] = {1, 0.0, -0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1e-320};
  const auto same = [&](auto apply) {
    const auto gradients = [&] {
      std::vector<at::Tensor> all;
      for (const double value : values) {
        const auto x = torch::ones({3}, torch::requires_grad());
        apply(x, value).sum().backward();
        all.push_back(x.grad().view(at::kInt));
      }
      return all;
    };
    const auto expected = gradients();
    reset();
    const auto guard = enable(compilers::eager());
    const auto found = gradients();
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << values[i];
  };
  same([](const at::Tensor& x, double value) { return ScaleBy<true>::apply(x, value, 0.0); });
  same([](const at::Tensor& x, double value) { return ScaleBy<false>::apply(x, value, 0.0); });
}

/// Branches on the sign of a number.
struct Branches : Function<Branches> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double slope) {
    ctx->saved_data["slope"] = slope;
    return x * slope;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto slope = ctx->saved_data["slope"];
    const bool is_positive = slope.isSymFloat() ? slope.toSymFloat().sym_gt(0.0).guard_bool(__FILE__, __LINE__) : slope.toDouble() > 0;
    return {is_positive ? grads[0] * slope.toScalar() : grads[0].neg() * slope.toScalar(), at::Tensor()};
  }
};

TEST(SavedNumbers, ThatDecideAreCompared) {
  const Stats counts =
      same_gradients(20, [](const at::Tensor& x, int step) { return Branches::apply(x, (step % 3 == 0 ? -1 : 1) * (step + 0.5)).sum(); });
  EXPECT_LE(counts.unique_graphs, 3U) << counts;
}

// ---- sizes

/// Three results; gradients of the unused ones are created with the sizes that LibTorch keeps.
struct ThreeResults : Function<ThreeResults> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w, double factor) {
    ctx->save_for_backward({x, w});
    ctx->saved_data["factor"] = factor;
    return {x.mm(w), x.sum(1), w * factor};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return {grads[0].mm(saved[1].t()) + grads[1].unsqueeze(1), saved[0].t().mm(grads[0]) + grads[2] * ctx->saved_data["factor"].toScalar(),
            at::Tensor()};
  }
};

void expect_two_graphs(const std::vector<bool>& used, bool factor_changes) {
  const auto gradients = [&] {
    std::vector<at::Tensor> all;
    for (int batch = 2; batch < 22; ++batch) {
      at::manual_seed(batch);
      const auto x = leaf({batch, 3}), w = leaf({3, batch % 2 == 0 ? 4 : 5});
      const auto results = ThreeResults::apply(x.sin(), w.cos(), factor_changes ? batch * 0.3 : 0.5);
      at::Tensor loss = torch::zeros({});
      for (size_t i = 0; i < used.size(); ++i) {
        if (used[i]) loss = loss + results[i].sin().sum();
      }
      loss.backward();
      all.insert(all.end(), {x.grad(), w.grad()});
    }
    return all;
  };
  const auto expected = gradients();
  reset();
  const auto guard = enable(compilers::eager());
  const auto found = gradients();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
  EXPECT_EQ(stats().unique_graphs, 2U) << stats();
  EXPECT_THAT(stats().opaque_nodes, testing::IsEmpty()) << stats();
}

TEST(SizesOfFunctions, ThatChangeBecomeDynamic) {
  for (const bool factor_changes : {false, true}) {
    expect_two_graphs({true, false, false}, factor_changes);
    expect_two_graphs({false, true, false}, factor_changes);
    expect_two_graphs({false, false, true}, factor_changes);
    expect_two_graphs({true, true, true}, factor_changes);
  }
}

}  // namespace
}  // namespace hindcast::tests::users_functions_test
