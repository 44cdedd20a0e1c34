// Views and in-place operations: the nodes that LibTorch rebases (CopySlices, AsStridedBackward) and the values
// that formulas saved before a write.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/programs.h"
#include "tests/support/without_leak_check.h"

#include <optional>

namespace hindcast::tests::semantics_views_test {
namespace {

using torch::autograd::variable_list;

struct InPlace {
  const char* name;
  /// Changes `base` (a fresh non-leaf of 4 by 6) in place; `w` is a leaf of 4 by 6.
  void (*change)(at::Tensor& base, const at::Tensor& w);
  /// Takeover::Any: for a program whose backwards are all refused.
  Takeover takeover = Takeover::Hits;
  bool leaks = false;  ///< a node saves a view of its own result, and the backward that would release it is refused
};

void PrintTo(const InPlace& program, std::ostream* out) { *out << program.name; }

class InPlacePrograms : public testing::TestWithParam<InPlace> {};

TEST_P(InPlacePrograms, HaveTheGradientsOfTheStockEngine) {
  std::optional<WithoutLeakCheck> unchecked;
  if (GetParam().leaks) unchecked.emplace();
  expect_same_steps(
      3,
      [change = GetParam().change](Log& log, int) {
        const auto x = leaf({4, 6}), w = leaf({4, 6});
        auto base = x.sin();
        log.attempt("forward", [&] { change(base, w); });
        log.attempt("backward", [&] { base.exp().sum().backward(); });
        log.show("grads", {x.grad(), w.grad()});
      },
      GetParam().takeover);
}

TEST_P(InPlacePrograms, WithHooksBeforeAndAfterTheWrite) {
  std::optional<WithoutLeakCheck> unchecked;
  if (GetParam().leaks) unchecked.emplace();
  expect_same_steps(
      3,
      [change = GetParam().change](Log& log, int) {
        const auto x = leaf({4, 6}), w = leaf({4, 6});
        auto base = x.sin();
        base.register_hook([&](at::Tensor grad) { log.show("before", grad); });
        log.attempt("forward", [&] { change(base, w); });
        base.register_hook([&](at::Tensor grad) { log.show("after", grad); });
        base.retain_grad();
        log.attempt("backward", [&] { base.exp().sum().backward(); });
        log.show("grads", {x.grad(), w.grad(), base.grad()});
      },
      GetParam().takeover);
}

// clang-format off
INSTANTIATE_TEST_SUITE_P(
    Views, InPlacePrograms,
    testing::Values(
        InPlace{"MulInPlace", [](at::Tensor& base, const at::Tensor& w) { base.mul_(w); }},
        InPlace{"AddInPlace", [](at::Tensor& base, const at::Tensor& w) { base.add_(w, 3); }},
        InPlace{"ReluInPlace", [](at::Tensor& base, const at::Tensor&) { base.mul(1).relu_(); base.neg_(); }},
        InPlace{"CopyInPlace", [](at::Tensor& base, const at::Tensor& w) { base.copy_(w); }},
        InPlace{"ZeroInPlace", [](at::Tensor& base, const at::Tensor&) { base.zero_(); }},
        InPlace{"SelectMul", [](at::Tensor& base, const at::Tensor& w) { base.select(0, 1).mul_(w.select(0, 2)); }},
        InPlace{"SelectFill", [](at::Tensor& base, const at::Tensor&) { base.select(1, 0).fill_(2); }},
        InPlace{"SliceAdd", [](at::Tensor& base, const at::Tensor& w) { base.slice(1, 0, 6, 2).add_(w.slice(1, 0, 3)); }},
        InPlace{"SliceCopy", [](at::Tensor& base, const at::Tensor& w) { base.slice(0, 1, 3).copy_(w.slice(0, 2, 4)); }},
        InPlace{"TransposedMul", [](at::Tensor& base, const at::Tensor& w) { base.t().mul_(w.t()); }},
        InPlace{"ViewAdd", [](at::Tensor& base, const at::Tensor& w) { base.view({24}).add_(w.view({24})); }},
        InPlace{"ChainOfViews", [](at::Tensor& base, const at::Tensor& w) {
          base.view({2, 2, 6}).select(0, 1).slice(1, 1, 5).t().mul_(w.slice(0, 0, 2).slice(1, 0, 4).t());
        }},
        InPlace{"SeveralWrites", [](at::Tensor& base, const at::Tensor& w) {
          base.select(0, 0).mul_(2);
          base.select(0, 1).add_(w.select(0, 0));
          base.mul_(w);
          base.slice(1, 2, 4).zero_();
        }},
        InPlace{"Diagonal", [](at::Tensor& base, const at::Tensor& w) { base.diagonal().mul_(w.diagonal(1).slice(0, 0, 4)); }},
        InPlace{"AsStrided", [](at::Tensor& base, const at::Tensor&) { base.as_strided({3, 2}, {6, 2}, 1).mul_(4); }},
        InPlace{"Unsqueezed", [](at::Tensor& base, const at::Tensor& w) { base.unsqueeze(0).mul_(w.unsqueeze(0)); }},
        InPlace{"SplitPart", [](at::Tensor& base, const at::Tensor& w) { base.split_with_sizes({2, 4}, 1)[1].mul_(w.slice(1, 0, 4)); }},
        InPlace{"UnbindPart", [](at::Tensor& base, const at::Tensor&) { base.unbind(0)[0].mul_(2); }},
        InPlace{"MaskedFill", [](at::Tensor& base, const at::Tensor& w) { base.masked_fill_(w.detach() > 0, 1.5); }},
        InPlace{"IndexPut", [](at::Tensor& base, const at::Tensor& w) {
          base.index_put_({at::tensor({0, 2, 2})}, w.slice(0, 0, 3), /*accumulate=*/true);
        }},
        InPlace{"WriteWithItself", [](at::Tensor& base, const at::Tensor&) { base.select(0, 0).mul_(base.select(0, 1)); }, Takeover::Any, true},
        InPlace{"WriteAfterRead", [](at::Tensor& base, const at::Tensor& w) {
          const auto read = base * w;  // saves base
          base.add_(read.detach());
        }},
        InPlace{"SavedOutput", [](at::Tensor& base, const at::Tensor& w) {
          base.select(0, 0).copy_(w.select(0, 0));
          base.slice(1, 1, 4).sigmoid_();
        }},
        InPlace{"NumbersAndOtherTypes", [](at::Tensor& base, const at::Tensor& w) {
          base.select(1, 2).copy_(w.select(1, 0).to(at::kDouble));
          base.slice(1, 0, 2).fill_(0.5);
          base.slice(1, 4, 6).div_(3).pow_(2);
        }},
        InPlace{"EmptyViews", [](at::Tensor& base, const at::Tensor& w) {
          base.slice(0, 2, 2).mul_(2);
          base.slice(1, 6, 6).copy_(w.slice(1, 0, 0));
        }},
        InPlace{"DetachedWrite", [](at::Tensor& base, const at::Tensor&) { base.detach().mul_(2); }}),
    [](const auto& info) { return info.param.name; });
// clang-format on

TEST(Views, OfALeafUnderNoGradAreWritten) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({4});
    {
      const at::NoGradGuard no_grad;
      x.slice(0, 0, 2).zero_();
    }
    x.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Views, InPlaceOnALeafIsRefused) {
  expect_same_steps(2, [](Log& log, int) {
    const auto x = leaf({4});
    log.attempt("leaf", [&] { x.mul_(2); });
    log.attempt("view of a leaf", [&] { x.slice(0, 0, 2).mul_(2); });
    x.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Views, MadeBeforeABaseIsWrittenAreUpdated) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({4}), w = leaf({2});
    auto base = x * 2;
    const auto view = base.slice(0, 1, 3);
    base.slice(0, 0, 2).mul_(w);
    (view.exp().sum() + base.sin().sum()).backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Views, OfABaseThatDoesNotRequireGrad) {
  expect_same_steps(3, [](Log& log, int) {
    const auto w = leaf({2}), v = leaf({2});
    auto base = at::zeros({3, 2});
    base.select(0, 0).copy_(w);
    base.select(0, 2).copy_(w * v);
    base.pow(2).sum().backward();
    log.show("grads", {w.grad(), v.grad()});
  });
}

TEST(Views, MultiOutputViewsRefuseToBeWritten) {
  expect_same_steps(
      2,
      [](Log& log, int) {
        const auto x = leaf({4, 2});
        const auto y = x * 2;
        auto rows = y.unbind(0);
        log.attempt("write", [&] {
          rows[0].mul_(3);
          y.sum().backward();
        });
        log.show("x.grad", x.grad());
      },
      Takeover::Any);
}

TEST(Views, ManyWritesInALoop) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({8});
    auto state = at::zeros({8});
    for (int i = 0; i < 8; ++i) {
      state.select(0, i).add_(x.select(0, i) * (i + 1));
      if (i > 0) state.select(0, i).mul_(state.select(0, i - 1).clone() + 1);
    }
    state.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Views, ComplexAndConjugateViewsAreWritten) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}, at::kComplexFloat), w = leaf({3});
    auto y = x * at::ones({3}, at::kComplexFloat);
    at::view_as_real(y).select(1, 0).mul_(w);
    y.conj().mul_(2);
    at::view_as_real(y).pow(2).sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

// The write's node leads to the view's history, the CopySlices to the base's: whether one is needed says nothing about the other.
TEST(Views, SomeGradientsOfAWriteAreWanted) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({4, 3}), w = leaf({3});
    auto base = x.sin();
    auto row = base.select(0, 1);
    row.mul_(w);
    const auto some = [&]() -> variable_list {
      if (step == 0) return {x};
      if (step == 1) return {w};
      return {w, x};
    }();
    log.show("of the base", torch::autograd::grad({base.exp().sum()}, some, {}, true));
    log.show("of the view", torch::autograd::grad({row.exp().sum()}, some));
  });
}

struct Doubled : torch::autograd::Function<Doubled> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    x.mul_(2);
    context->mark_dirty({x});
    return x;
  }
  static variable_list backward(torch::autograd::AutogradContext*, const variable_list& grads) { return {grads[0] * 2}; }
};

TEST(Views, ByATraceableFunction) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({4, 3});
    auto base = x.sin();
    Doubled::apply(base.slice(1, 0, 2));
    base.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Views, WritesAreLookedInto) {
  const auto grads = [](int64_t batch) {
    torch::manual_seed(batch);
    const auto x = leaf({batch, 6}), w = leaf({batch, 2});
    auto base = x.sin();
    base.slice(1, 0, 2).copy_(w);
    base.slice(1, 2, 6, 2).mul_(w).add_(1);
    base.select(1, 5).sigmoid_();
    base.exp().sum().backward();
    return std::vector<at::Tensor>{x.grad(), w.grad()};
  };
  hindcast::reset();
  for (const int64_t batch : {4, 5, 7, 9, 64}) {
    const auto stock = grads(batch);
    const auto guard = hindcast::enable();
    const auto ours = grads(batch);
    for (size_t i = 0; i < stock.size(); ++i) EXPECT_EQ(describe(ours[i]), describe(stock[i])) << "batch of " << batch;
  }
  const auto stats = hindcast::stats();
  EXPECT_TRUE(stats.opaque_nodes.empty()) << hindcast::report();
  EXPECT_EQ(stats.unique_graphs, 2U) << "the batch should have become dynamic\n" << hindcast::report();
  EXPECT_EQ(stats.hits, 3U) << hindcast::report();
}

TEST(Views, WriteOnTheSecondRunOfAStructure) {
  expect_same_steps(6, [](Log& log, int step) {
    const auto x = leaf({4, 2});
    auto y = x.sin();
    y.slice(0, step % 3, step % 3 + 2).mul_(2);
    y.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

// A gradient may be a view of the caller's tensor. If that tensor was saved, autograd notices a write through the gradient, and vice versa.
TEST(Views, GradientsThatAreViewsCountWritesWithWhatTheyView) {
  using Reshape = at::Tensor (*)(const at::Tensor&);
  for (const Reshape reshape : {Reshape([](const at::Tensor& p) {
                                  return p.view({3, 4});
                                }),
                                Reshape([](const at::Tensor& p) {
                                  return p.view({4, 3}).t();
                                }),
                                Reshape([](const at::Tensor& p) {
                                  return p.view({4, 3, 1}).permute({1, 2, 0}).squeeze(1);
                                })}) {
    expect_same_steps(12, [reshape](Log& log, int step) {
      const auto p = leaf({12}), v = leaf({3, 4}), g = at::full({3, 4}, 2.0, v.options().requires_grad(false));
      const auto of_saved = (v * g).sum();
      const auto y = reshape(p);
      if (step / 2 % 2 == 1) y.register_hook([&](at::Tensor grad) { log.note("version in the hook: " + std::to_string(grad._version())); });
      at::Tensor result;
      if (step % 2 == 0) {
        y.backward(g);
        result = p.grad();
      } else {
        result = torch::autograd::grad({y}, {p}, {g})[0];
      }
      log.note("versions: " + std::to_string(result._version()) + ", " + std::to_string(g._version()));
      g.add_(0);
      log.note("written to what is viewed: " + std::to_string(result._version()));
      result.mul_(100);
      log.note("written to the view: " + std::to_string(g._version()));
      log.attempt("who saved it", [&] { of_saved.backward(); });
      log.show("grads", {p.grad(), v.grad()});
    });
  }
}

}  // namespace
}  // namespace hindcast::tests::semantics_views_test
