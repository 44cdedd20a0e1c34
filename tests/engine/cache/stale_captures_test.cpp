// Programs for which a capture looks valid and is not: the difference is not in the key, or arises while the backward runs. Each one was
// silently wrong, or crashed, in some version of the engine.

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/types.h>

#include <array>
#include <stdexcept>

#include "hindcast/hindcast.h"
#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor other_layout(const at::Tensor& tensor) { return tensor.t().contiguous().t(); }

TEST(StaleCapture, AHookChangesWhatItsOwnNodeSaved) {
  expect_same_steps(4, [](Log& log, int step) {
    auto w = leaf({3}), x = leaf({3});
    const auto saved = w.detach().clone();
    const auto y = saved * x;
    y.register_hook([&, step](at::Tensor) {
      if (step % 2 == 1) saved.mul_(2);
    });
    log.attempt("backward", [&] { y.sin().sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(StaleCapture, AGradientWaitsForAnotherNodeThanAtTheCapture) {
  expect_same_steps(
      6,
      [](Log& log, int step) {
        const auto a = leaf({2, 2}), b = leaf({2, 2}), c = leaf({2, 2});
        const auto a2 = a * 2, b2 = b * 3, c2 = c * 4;
        const auto p = a2 + b2;
        p.grad_fn()->add_post_hook(post_hook([step](const variable_list& outputs, const variable_list&) {
          return step % 2 == 0 ? variable_list{outputs[0], at::Tensor()} : variable_list{at::Tensor(), outputs[1]};
        }));
        c2.register_hook([step](at::Tensor grad) { return step < 2 ? grad.contiguous() : other_layout(grad); });
        (p + c2).sum().backward();
        log.show("grads", {a.grad(), b.grad(), c.grad()});
      },
      Takeover::Some);
}

TEST(StaleCapture, AContinuationMeetsATensorThatWasWrittenTo) {
  expect_same_steps(
      5,
      [](Log& log, int step) {
        const auto x = leaf({2, 2}), w = leaf({2, 2});
        const auto u = x.exp();
        const auto y = u * w;
        y.register_hook([&, step](at::Tensor grad) {
          if (step == 2) {
            const at::NoGradGuard no_grad;
            u.mul_(2);
          }
          return step == 0 ? grad.contiguous() : other_layout(grad);
        });
        log.attempt("backward", [&] { y.sum().backward(); });
        log.show("grads", {x.grad(), w.grad()});
      },
      Takeover::Some);
}

TEST(StaleCapture, AContinuationMeetsAnotherKindOfLateHook) {
  expect_same_steps(
      4,
      [](Log& log, int step) {
        const auto x = leaf({3});
        const auto y = x.sin(), z = y.cos();
        z.register_hook([&, step](at::Tensor) {
          if (step == 1) y.register_hook([](at::Tensor grad) { return grad * 2; });
          if (step >= 2) {
            y.grad_fn()->add_post_hook(post_hook([&log](const variable_list& outputs, const variable_list& inputs) {
              log.note("post hook with " + std::to_string(inputs.size()) + " inputs");
              return variable_list{outputs[0] * 3};
            }));
          }
        });
        z.sum().backward();
        log.show("x.grad", x.grad());
      },
      Takeover::Some);
}

TEST(StaleCapture, ALateHookSitsOnAnInputThatNobodyReads) {
  expect_same_steps(
      4,
      [](Log& log, int step) {
        const auto mean = leaf({3}), c = leaf({3});
        const auto n = at::normal(mean, 1.0), c2 = c * 4;
        c2.register_hook([step](at::Tensor grad) { return step == 0 ? grad : grad.to(at::kFloat).expand({3}).clone() * (step + 1); });
        (n * 2 + c2.unsqueeze(0).squeeze(0)).sum().backward();
        log.show("grads", {mean.grad(), c.grad()});
      },
      Takeover::Some);
}

TEST(StaleCapture, GradientsThatNobodyReadAreKeptForAContinuation) {
  expect_same_steps(
      4,
      [](Log& log, int step) {
        const auto mean = leaf({2, 2}), c = leaf({2, 2});
        const auto n = at::normal(mean, 1.0), c2 = c * 4;
        c2.register_hook([step](at::Tensor grad) { return step == 0 ? grad.contiguous() : other_layout(grad); });
        (n + c2).sum().backward();
        log.show("grads", {mean.grad(), c.grad()});
      },
      Takeover::Some);
}

class SizesOfZeroAndOne : public testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(SizesOfZeroAndOne, ServeNoOtherSizes) {
  const std::vector<int64_t> batches = GetParam();
  expect_same_steps(
      static_cast<int>(batches.size()),
      [&](Log& log, int step) {
        const int64_t batch = batches[static_cast<size_t>(step)];
        const auto x = leaf({3 * batch, 2});
        const auto w = at::randn({3, batch, 2});
        (x.view({batch, 3, 2}).permute({1, 0, 2}) * w).sum().backward();
        const auto y = leaf({batch, 4}), bias = leaf({4});
        (y.transpose(0, 1).reshape({-1}).sin().sum() + (y + bias).mean(0).exp().sum()).backward();
        log.show("grads", {x.grad(), y.grad(), bias.grad()});
      },
      Takeover::Some);
}

INSTANTIATE_TEST_SUITE_P(Batches, SizesOfZeroAndOne,
                         testing::Values(std::vector<int64_t>{4, 1, 4, 7, 1, 7}, std::vector<int64_t>{4, 0, 4, 7, 0, 7},
                                         std::vector<int64_t>{1, 4, 1, 5, 0, 6}, std::vector<int64_t>{0, 1, 2, 3, 1, 0}));

TEST(StaleCapture, AHookRegistersATraceableHookDuringTheCapture) {
  expect_same_steps(
      3,
      [](Log& log, int step) {
        const auto x = leaf({3});
        const auto y = x.sin(), z = y.cos();
        z.register_hook([&, step](at::Tensor) {
          if (step == 0) y.register_hook(hindcast::traceable([](at::Tensor grad) { return grad * 10; }));
        });
        z.sum().backward();
        log.show("x.grad", x.grad());
      },
      Takeover::Some);
}

TEST(StaleCapture, AHookAddsToATraceableHook) {
  expect_same_steps(
      3,
      [](Log& log, int step) {
        const auto x = leaf({3});
        const auto y = x.sin(), z = y.cos();
        y.register_hook(hindcast::traceable([](at::Tensor grad) { return grad * 10; }));
        z.register_hook([&, step](at::Tensor) {
          if (step >= 1) y.register_hook([](at::Tensor grad) { return grad + 1; });
        });
        z.sum().backward();
        log.show("x.grad", x.grad());
      },
      Takeover::Some);
}

TEST(StaleCapture, ATraceableHookWritesToItsGradient) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    x.register_hook(hindcast::traceable([](at::Tensor grad) {
      grad.mul_(2);
      return grad;
    }));
    x.sin().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(StaleCapture, ATraceableHookAsksForANumber) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3});
    x.register_hook(hindcast::traceable([](at::Tensor grad) { return grad * grad.sum().item<double>(); }));
    (x * (step % 2 + 1)).sin().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(StaleCapture, ATraceableHookDrawsRandomNumbers) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    x.register_hook(hindcast::traceable([](at::Tensor grad) { return grad * at::rand({3}) / grad.abs().max().item<double>(); }));
    x.sin().sum().backward();
    log.show("x.grad", x.grad());
    log.show("the next random numbers", at::rand({2}));
  });
}

// Custom functions that declare themselves traceable, and do what a capture cannot express.

struct WritesToItsGradient : torch::autograd::Function<WritesToItsGradient> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    grads[0].mul_(2);
    return {grads[0]};
  }
};

struct KeepsTensorsInADict : torch::autograd::Function<KeepsTensorsInADict> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale) {
    c10::Dict<std::string, at::Tensor> dict;
    dict.insert("scale", scale);
    context->saved_data["dict"] = dict;
    return x * scale;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto dict = context->saved_data["dict"].toGenericDict();
    return {grads[0] * dict.at("scale").toTensor(), at::Tensor()};
  }
};

struct KeepsATuple : torch::autograd::Function<KeepsATuple> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale) {
    context->saved_data["pair"] = std::make_tuple(scale, int64_t{1});
    return x * scale;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {grads[0] * context->saved_data["pair"].toTuple()->elements()[0].toTensor(), at::Tensor()};
  }
};

struct DividesByABatchThatIsNotUsed : torch::autograd::Function<DividesByABatchThatIsNotUsed> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext*, const at::Tensor& x) { return {x * 2, x * 3}; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] / static_cast<double>(grads[1].size(0))}; }
};

struct ReadsAnOffset : torch::autograd::Function<ReadsAnOffset> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& part) {
    context->save_for_backward({part});
    return x * part;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor part = context->get_saved_variables()[0];
    return {grads[0] * part.as_strided({4}, {1}, part.storage_offset()), at::Tensor()};
  }
};

struct Throws : torch::autograd::Function<Throws> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list) { throw std::domain_error("the function's own error"); }
};

TEST(StaleCapture, ATraceableFunctionWritesToItsGradient) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    WritesToItsGradient::apply(x.sin()).exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(StaleCapture, ATraceableFunctionKeepsTensorsOutOfSight) {
  expect_same_steps(
      4,
      [](Log& log, int step) {
        const auto x = leaf({3});
        const auto scale = at::scalar_tensor(step + 2.0);
        (KeepsTensorsInADict::apply(x, scale) + KeepsATuple::apply(x, scale * 2)).sum().backward();
        log.show("x.grad", x.grad());
      },
      Takeover::Any);
}

TEST(StaleCapture, ATraceableFunctionReadsTheSizeOfAnUnusedGradient) {
  expect_same_steps(5, [](Log& log, int step) {
    const int64_t batch = std::array{4, 7, 5, 9, 4}[static_cast<size_t>(step)];
    const auto x = leaf({batch, 2});
    DividesByABatchThatIsNotUsed::apply(x)[0].sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(StaleCapture, ATraceableFunctionReadsAStorageOffset) {
  const auto big = at::arange(32, at::kFloat);
  expect_same_steps(4, [&](Log& log, int step) {
    const auto x = leaf({4});
    ReadsAnOffset::apply(x, big.narrow(0, 8 * step, 4)).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(StaleCapture, ATraceableFunctionThrows) {
  expect_same_steps(
      3,
      [](Log& log, int) {
        const auto x = leaf({3});
        log.attempt("backward", [&] { Throws::apply(x.sin()).sum().backward(); });
        log.show("x.grad", x.grad());
      },
      Takeover::Some);
}

TEST(StaleCapture, ASliceMovesOnThatIsAsLongAsBefore) {
  expect_same_steps(
      6,
      [](Log& log, int step) {
        const auto x = leaf({20});
        const int64_t start = std::array{2, 5, 3, 0, 1, 7}[static_cast<size_t>(step)];
        x.slice(0, start, start + 4).sum().backward();
        log.show("x.grad", x.grad());
      },
      Takeover::Some);
}

TEST(StaleCapture, AHookReturnsTheWrongNumberOfGradients) {
  for (const size_t count : {size_t{0}, size_t{2}}) {
    expect_same_steps(
        3,
        [count](Log& log, int) {
          const auto x = leaf({3});
          torch::autograd::impl::grad_accumulator(x)->add_pre_hook(
              pre_hook([count](const variable_list& grads) { return variable_list(count, grads[0]); }));
          log.attempt("backward", [&] { x.sin().sum().backward(); });
          log.show("x.grad", x.grad());
        },
        Takeover::Some);
  }
}

}  // namespace
}  // namespace hindcast::tests
