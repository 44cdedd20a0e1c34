// Nodes written by users: torch::autograd::Function in C++, traceable or not, and subclasses of Node.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "capture/recorder/libtorch_compat.h"
#include "tests/support/programs.h"

namespace hindcast::tests::semantics_functions_test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// The log of the running program: backward() is static and cannot reach it otherwise.
thread_local Log* t_log = nullptr;

void expect_same_functions(int steps, const std::function<void(Log&, int)>& step, Takeover takeover = Takeover::Hits) {
  expect_same_steps(
      steps,
      [&](Log& log, int i) {
        t_log = &log;
        step(log, i);
        t_log = nullptr;
      },
      takeover);
}

struct Scale : Function<Scale> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double factor) {
    ctx->save_for_backward({x});
    ctx->saved_data["factor"] = factor;
    return x * factor;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    t_log->show("gradient in Scale", grads);
    t_log->show("saved in Scale", ctx->get_saved_variables());
    return {grads[0] * ctx->saved_data["factor"].toDouble(), at::Tensor()};
  }
};

TEST(CustomFunction, SavesATensorAndADouble) {
  expect_same_functions(4, [](Log& log, int step) {
    const auto x = leaf({3});
    Scale::apply(x.sin(), step < 2 ? 2.0 : 0.5 * step).exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(CustomFunction, UsedTwiceIsAnError) {
  expect_same_functions(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto loss = Scale::apply(x.sin(), 3.0).sum();
    loss.backward();
    log.attempt("again", [&] { loss.backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(CustomFunction, WithHooksAround) {
  expect_same_functions(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto z = Scale::apply(y, 3.0);
    y.register_hook([&](at::Tensor grad) { log.show("hook of y", grad); });
    z.register_hook([&](at::Tensor grad) { return grad + 1; });
    z.retain_grad();
    z.sum().backward();
    log.show("grads", {x.grad(), z.grad()});
  });
}

TEST(CustomFunction, SavedTensorChangedInPlace) {
  expect_same_functions(4, [](Log& log, int step) {
    const auto x = leaf({3});
    auto y = x.sin();
    const auto z = Scale::apply(y, 3.0);
    if (step % 2 == 1) y.mul_(2);
    log.attempt("backward", [&] { z.sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

struct TraceablePolynomial : Function<TraceablePolynomial> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w, int64_t power, std::vector<double> factors) {
    ctx->save_for_backward({x, w});
    ctx->saved_data["power"] = power;
    ctx->saved_data["factors"] = factors;
    ctx->saved_data["name"] = std::string("polynomial");
    return x.pow(power) * w * factors[0] + factors[1];
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto power = ctx->saved_data["power"].toInt();
    const auto factors = ctx->saved_data["factors"].toDoubleVector();
    const auto& [x, w] = std::tie(saved[0], saved[1]);
    return {grads[0] * w * x.pow(power - 1) * power * factors[0], (grads[0] * x.pow(power) * factors[0]).sum(0, true), at::Tensor(),
            at::Tensor()};
  }
};

TEST(TraceableFunction, ComputesWhatTheStockEngineComputes) {
  expect_same_functions(6, [](Log& log, int step) {
    const auto x = leaf({2 + step % 2, 3}), w = leaf({1, 3});
    TraceablePolynomial::apply(x.sin(), w, 2 + step / 4, std::vector<double>{0.5, 1.0}).exp().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(TraceableFunction, UsedTwiceIsAnError) {
  expect_same_functions(3, [](Log& log, int) {
    const auto x = leaf({2, 3}), w = leaf({1, 3});
    const auto loss = TraceablePolynomial::apply(x, w, 3, std::vector<double>{1.0, 0.0}).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    log.attempt("third", [&] { loss.backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

template <bool Materialize>
struct TwoOutputs : Function<TwoOutputs<Materialize>> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->set_materialize_grads(Materialize);
    return {x.sin(), x.cos()};
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    t_log->show("gradients", grads);
    auto result = at::zeros({3});
    for (const auto& grad : grads) {
      if (grad.defined()) result = result + grad;
    }
    return {result};
  }
};

TEST(CustomFunction, MaterializesUndefinedGradientsOrNot) {
  expect_same_functions(4, [](Log& log, int step) {
    const auto x = leaf({3}), y = leaf({3});
    TwoOutputs<true>::apply(x)[step % 2].exp().sum().backward();
    TwoOutputs<false>::apply(y)[step % 2].exp().sum().backward();
    log.show("grads", {x.grad(), y.grad()});
  });
}

/// Returns from backward whatever the test chooses, for the engine to check.
struct Answer : Function<Answer> {
  using Maker = variable_list (*)(const at::Tensor&);
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w, Maker) {
    (void)ctx;
    return x + w;
  }
  static inline thread_local Maker make = nullptr;
  static variable_list backward(AutogradContext*, variable_list grads) { return make(grads[0]); }
};

struct Result {
  const char* name;
  Answer::Maker make;
};

void PrintTo(const Result& result, std::ostream* out) { *out << result.name; }

class ResultsOfBackward : public testing::TestWithParam<Result> {};

TEST_P(ResultsOfBackward, AreCheckedAlike) {
  expect_same_functions(5, [make = GetParam().make](Log& log, int step) {
    Answer::make = step % 2 == 1 ? make : [](const at::Tensor& grad) { return variable_list{grad, grad, {}}; };
    const auto x = leaf({2, 3}), w = leaf({2, 3});
    log.attempt("backward", [&] { Answer::apply(x.sin(), w, nullptr).exp().sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

const at::Tensor kNone;

INSTANTIATE_TEST_SUITE_P(CustomFunction, ResultsOfBackward,
                         testing::Values(Result{"Undefined",
                                                [](const at::Tensor& g) {
                                                  return variable_list{kNone, g, kNone};
                                                }},
                                         Result{"AllUndefined",
                                                [](const at::Tensor&) {
                                                  return variable_list{kNone, kNone, kNone};
                                                }},
                                         Result{"TooFew", [](const at::Tensor& g) { return variable_list{g}; }},
                                         Result{"TooMany",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g, g, kNone, g};
                                                }},
                                         Result{"TooManyUndefined",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g, g, kNone, kNone};
                                                }},
                                         Result{"ForANumber",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g, g, g};
                                                }},
                                         Result{"WrongShape",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g.t(), g, kNone};
                                                }},
                                         Result{"Broadcast",
                                                [](const at::Tensor& g) {
                                                  return variable_list{at::cat({g, g}).view({2, 2, 3}), g, kNone};
                                                }},
                                         Result{"Smaller",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g, g.sum(0), kNone};
                                                }},
                                         Result{"OtherDtype",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g.to(at::kDouble), g.to(at::kBFloat16), kNone};
                                                }},
                                         Result{"Complex",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g.to(at::kComplexFloat), g, kNone};
                                                }},
                                         Result{"Integers",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g, at::ones({2, 3}, at::kLong), kNone};
                                                }},
                                         Result{"Meta",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g.to(at::kMeta), g, kNone};
                                                }},
                                         Result{"Sparse",
                                                [](const at::Tensor& g) {
                                                  return variable_list{g, g.to_sparse(), kNone};
                                                }},
                                         Result{"OneTensorTwice",
                                                [](const at::Tensor&) {
                                                  const auto t = at::ones({2, 3});
                                                  return variable_list{t, t, kNone};
                                                }},
                                         Result{"Throws",
                                                [](const at::Tensor&) -> variable_list { throw std::domain_error("in backward"); }}),
                         [](const auto& info) { return info.param.name; });

/// Runs its forward again in the backward and calls backward() on it, as checkpointing does.
struct Checkpoint : Function<Checkpoint> {
  static at::Tensor piece(const at::Tensor& x, const at::Tensor& w) { return x.mm(w).tanh().mm(w).sin(); }
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w) {
    ctx->save_for_backward({x, w});
    const at::NoGradGuard no_grad;
    return piece(x, w);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto x = saved[0].detach().set_requires_grad(true), w = saved[1].detach().set_requires_grad(true);
    const at::AutoGradMode grad_mode(true);
    torch::autograd::backward({piece(x, w)}, {grads[0]});
    t_log->note("a piece is done");
    return {x.grad(), w.grad()};
  }
};

TEST(CustomFunction, CallsBackwardInItsBackward) {
  expect_same_functions(4, [](Log& log, int) {
    auto x = leaf({2, 3});
    const auto w = leaf({3, 3}), v = leaf({3, 3});
    Checkpoint::apply(Checkpoint::apply(x, w), v).sum().backward();
    log.show("grads", {x.grad(), w.grad(), v.grad()});
  });
}

struct InPlaceDouble : Function<InPlaceDouble> {
  static at::Tensor forward(AutogradContext* ctx, at::Tensor x) {
    x.mul_(2);
    ctx->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    t_log->note("InPlaceDouble");
    return {grads[0] * 2};
  }
};

TEST(CustomFunction, ChangesItsInputInPlace) {
  expect_same_functions(3, [](Log& log, int) {
    const auto x = leaf({3});
    auto y = x * 1;
    InPlaceDouble::apply(y);
    y.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(CustomFunction, ChangesAViewInPlace) {
  expect_same_functions(
      3,
      [](Log& log, int) {
        const auto x = leaf({2, 3});
        const auto y = x * 1;
        log.attempt("forward and backward", [&] {
          InPlaceDouble::apply(y.select(0, 1));
          y.exp().sum().backward();
        });
        log.show("x.grad", x.grad());
      },
      Takeover::Any);
}

struct IndexOfMax : Function<IndexOfMax> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x) {
    auto [values, indices] = x.max(0);
    ctx->mark_non_differentiable({indices});
    ctx->save_for_backward({indices});
    ctx->saved_data["size"] = x.size(0);
    return {values, indices};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto index = ctx->get_saved_variables()[0];
    return {at::zeros({ctx->saved_data["size"].toInt()}).index_put({index}, grads[0])};
  }
};

TEST(CustomFunction, HasANonDifferentiableOutput) {
  expect_same_functions(4, [](Log& log, int step) {
    const auto x = leaf({3 + step % 2});
    const auto out = IndexOfMax::apply(x.sin());
    log.show("indices", out[1]);
    out[0].exp().backward();
    log.show("x.grad", x.grad());
  });
}

struct NeedsInputGrad : Function<NeedsInputGrad> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    ctx->save_for_backward({a, b});
    return a * b;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    t_log->note(std::string("needs ") + (ctx->needs_input_grad(0) ? "a" : "-") + (ctx->needs_input_grad(1) ? "b" : "-"));
    return {ctx->needs_input_grad(0) ? grads[0] * saved[1] : at::Tensor(), ctx->needs_input_grad(1) ? grads[0] * saved[0] : at::Tensor()};
  }
};

TEST(CustomFunction, IsAskedOnlyForNeededGradients) {
  expect_same_functions(6, [](Log& log, int step) {
    const auto a = leaf({3}), b = leaf({3});
    const auto loss = NeedsInputGrad::apply(a.sin(), b.cos()).sum();
    if (step % 3 == 0) loss.backward();
    if (step % 3 == 1) log.show("b only", torch::autograd::grad({loss}, {b}));
    if (step % 3 == 2) torch::autograd::backward({loss}, {}, {}, false, {a});
    log.show("grads", {a.grad(), b.grad()});
  });
}

struct SavesItsOutput : Function<SavesItsOutput> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const auto y = x.exp();
    ctx->save_for_backward({y});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) { return {grads[0] * ctx->get_saved_variables()[0]}; }
};

TEST(CustomFunction, SavesItsOwnOutput) {
  expect_same_functions(3, [](Log& log, int) {
    const auto x = leaf({3});
    SavesItsOutput::apply(SavesItsOutput::apply(x)).sum().backward();
    log.show("x.grad", x.grad());
  });
}

/// A third party's node, which knows nothing of compiled autograd.
struct ThirdPartyNode : torch::autograd::Node {
  explicit ThirdPartyNode(torch::autograd::edge_list edges) : Node(std::move(edges)) {}
  variable_list apply(variable_list&& grads) override {
    t_log->show("gradient in the third-party node", grads);
    if (released) throw std::runtime_error("the third-party node was released");
    variable_list results;
    for (size_t i = 0; i < num_outputs(); ++i) {
      results.push_back(task_should_compute_output(i) ? grads[0] * (i + 2) : at::Tensor());
    }
    return results;
  }
  void release_variables() override {
    t_log->note("released");
    released = true;
  }
  bool released = false;
};

at::Tensor third_party(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor out;
  {
    const at::NoGradGuard no_grad;
    out = a * 2 + b * 3;
  }
  auto node = capture::own_node(new ThirdPartyNode(torch::autograd::collect_next_edges(a, b)));
  torch::autograd::create_gradient_edge(out, node);
  return out;
}

TEST(ThirdPartyNode, RunsInItsPlace) {
  expect_same_functions(4, [](Log& log, int) {
    const auto a = leaf({3}), b = leaf({3});
    third_party(a.sin(), b).exp().sum().backward();
    log.show("grads", {a.grad(), b.grad()});
  });
}

TEST(ThirdPartyNode, IsReleasedOnlyWhenTheGraphIs) {
  expect_same_functions(3, [](Log& log, int) {
    const auto a = leaf({3}), b = leaf({3});
    const auto loss = third_party(a.sin(), b).sum();
    log.attempt("retained", [&] { loss.backward({}, /*retain_graph=*/true); });
    log.attempt("released", [&] { loss.backward(); });
    log.attempt("once more", [&] { loss.backward(); });
    log.show("grads", {a.grad(), b.grad()});
  });
}

TEST(ThirdPartyNode, IsAskedOnlyForNeededGradients) {
  expect_same_functions(4, [](Log& log, int step) {
    const auto a = leaf({3}), b = leaf({3});
    const auto y = a.sin();
    log.show("one of two", torch::autograd::grad({third_party(y, b).sum()}, {step % 2 == 0 ? y : b}));
  });
}

TEST(ThirdPartyNode, BetweenHooksAndOtherOpaqueNodes) {
  expect_same_functions(4, [](Log& log, int) {
    const auto a = leaf({3}), b = leaf({3});
    const auto y = Scale::apply(a.sin(), 2.0);
    const auto z = third_party(y, b);
    y.register_hook([&](at::Tensor grad) { return grad * 2; });
    z.register_hook([&](at::Tensor grad) { log.show("hook of z", grad); });
    (Scale::apply(z, 0.5) * z).sum().backward();
    log.show("grads", {a.grad(), b.grad()});
  });
}

}  // namespace
}  // namespace hindcast::tests::semantics_functions_test
