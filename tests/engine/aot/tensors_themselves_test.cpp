// What a function does to tensors themselves, not to their contents: recorded, or the function runs eagerly. Each call is compared with the
// function, on separate tensors.

#include <hindcast/aot.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hindcast::tests::tensors_themselves_test {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(Tensors)>;

AotOptions with_kernels() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.async = false;
  return options;
}

struct Outcome {
  Tensors results, inputs, gradients;
};

Outcome outcome_of(const Function& function, Tensors inputs, const std::function<void(const Tensors&)>& then) {
  Outcome outcome;
  outcome.results = function(inputs);
  at::Tensor loss;
  for (const at::Tensor& result : outcome.results) {
    if (!result.requires_grad() || result.is_leaf()) continue;
    loss = loss.defined() ? loss + result.sum() : result.sum();
  }
  if (loss.defined()) loss.backward();
  for (const at::Tensor& input : inputs) outcome.gradients.push_back(input.is_leaf() ? input.grad() : at::Tensor());
  if (then) {
    const at::NoGradGuard no_grad;
    then(outcome.results);
  }
  outcome.inputs = std::move(inputs);
  return outcome;
}

void expect_same(const Tensors& ours, const Tensors& stock, const std::string& where) {
  ASSERT_EQ(ours.size(), stock.size()) << where;
  for (size_t i = 0; i < stock.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), stock[i].defined()) << where << ", " << i;
    if (!stock[i].defined()) continue;
    ASSERT_EQ(ours[i].sizes(), stock[i].sizes()) << where << ", " << i;
    EXPECT_TRUE(at::allclose(ours[i], stock[i])) << where << ", " << i << ": " << ours[i] << stock[i];
    EXPECT_EQ(ours[i].requires_grad(), stock[i].requires_grad()) << where << ", " << i;
    EXPECT_EQ(ours[i].is_leaf(), stock[i].is_leaf()) << where << ", " << i;
  }
}

/// `then`: what the caller does to the results.
void expect_as_stock(const Function& function, const std::function<Tensors()>& inputs,
                     const std::function<void(const Tensors&)>& then = nullptr) {
  const auto f = aot_function(function, with_kernels());
  for (int call = 0; call < 4; ++call) {
    const Outcome stock = outcome_of(function, inputs(), then), ours = outcome_of(f, inputs(), then);
    const std::string where = "call " + std::to_string(call);
    expect_same(ours.results, stock.results, where + ", results");
    expect_same(ours.inputs, stock.inputs, where + ", inputs");
    expect_same(ours.gradients, stock.gradients, where + ", gradients");
  }
}

at::Tensor leaf(float value) { return torch::full({2, 3}, value).requires_grad_(); }

void set_first_to_zero(const Tensors& results) { results[0].zero_(); }
void set_last_to_zero(const Tensors& results) { results.back().zero_(); }

// ---- .data

TEST(TensorsThemselves, DataOfAResultIsItsMemory) {
  const auto function = [](const Tensors& in) {
    const at::Tensor h = in[0].sin();
    return Tensors{h, h.variable_data()};
  };
  expect_as_stock(
      function, [] { return Tensors{leaf(1)}; }, set_last_to_zero);
  expect_as_stock(
      function, [] { return Tensors{leaf(1)}; }, set_first_to_zero);
}

TEST(TensorsThemselves, AViewOfDataOfAResultIsItsMemory) {
  const auto function = [](const Tensors& in) {
    const at::Tensor h = in[0].sin();
    return Tensors{h, h.variable_data().view({-1})};
  };
  expect_as_stock(
      function, [] { return Tensors{leaf(1)}; }, set_last_to_zero);
}

// detach() gives a view, which shares the version counter.
TEST(TensorsThemselves, ADetachedResultIsAView) {
  const Function function = [](const Tensors& in) {
    const at::Tensor h = in[0].exp();
    return Tensors{h, h.detach(), h.detach().view({-1})};
  };
  expect_as_stock(
      function, [] { return Tensors{leaf(1)}; }, set_last_to_zero);
  expect_as_stock(
      function, [] { return Tensors{leaf(1)}; }, set_first_to_zero);
  const Function pair = [](const Tensors& in) {
    const at::Tensor h = in[0].exp();
    return Tensors{h, h.detach()};
  };
  expect_as_stock(
      pair, [] { return Tensors{leaf(1)}; }, set_last_to_zero);
  const auto f = aot_function(pair, with_kernels());
  for (int call = 0; call < 3; ++call) {
    const Tensors results = f(Tensors{leaf(1)});
    EXPECT_FALSE(results[1].requires_grad());
    if (call != 1) {
      results[0].sum().backward();
      continue;
    }
    results[1].zero_();
    EXPECT_THROW(results[0].sum().backward(), c10::Error);
  }
  EXPECT_EQ(f.stats().hits, 2U);
}

TEST(TensorsThemselves, DataOfAnArgumentCountsItsWritesItself) {
  const auto function = [](const Tensors& in) { return Tensors{in[0].variable_data()}; };
  const auto f = aot_function(Function(function), with_kernels());
  for (int call = 0; call < 3; ++call) {
    const auto x = leaf(1);
    const auto y = x * x;
    f(Tensors{x})[0].add_(1);  // without autograd's knowledge
    y.sum().backward();
    EXPECT_EQ(x.grad()[0][0].item<float>(), 4) << call;
  }
}

TEST(TensorsThemselves, DataIsAssignedToATensorThatWasMade) {
  expect_as_stock(
      [](const Tensors& in) {
        at::Tensor made = in[0].clone();
        made.set_data(made.variable_data() * 3);
        return Tensors{made + in[0]};
      },
      [] { return Tensors{leaf(1)}; });
}

TEST(TensorsThemselves, DataIsAssignedToAnArgument) {
  expect_as_stock(
      [](const Tensors& in) {
        in[0].set_data(in[0].variable_data() * 3);
        return Tensors{in[0] * in[1]};
      },
      [] {
        return Tensors{leaf(1), leaf(2)};
      });
}

TEST(TensorsThemselves, DataIsAssignedToATensorFromOutside) {
  at::Tensor outside;
  const Function function = [&](const Tensors& in) {
    outside.set_data(outside.variable_data().clamp(-0.5, 0.5));
    return Tensors{in[0] * outside};
  };
  const auto f = aot_function(function, with_kernels());
  for (int call = 0; call < 3; ++call) {
    outside = leaf(2);
    const auto x = leaf(3);
    const at::Tensor y = f(Tensors{x})[0];
    y.sum().backward();
    EXPECT_EQ(outside[0][0].item<float>(), 0.5) << call;
    EXPECT_EQ(y[0][0].item<float>(), 1.5) << call;
    EXPECT_EQ(x.grad()[0][0].item<float>(), 0.5) << call;
  }
}

// Read anew in each call, also if its memory has changed.
TEST(TensorsThemselves, DataOfATensorFromOutside) {
  const auto outside = leaf(2);
  const auto f = aot_function(Function([&](const Tensors& in) { return Tensors{in[0] * outside.variable_data()}; }), with_kernels());
  for (int call = 0; call < 4; ++call) {
    outside.set_data(torch::full({2, 3}, static_cast<float>(call)));
    const auto x = leaf(1);
    const at::Tensor y = f(Tensors{x})[0];
    y.sum().backward();
    EXPECT_EQ(y[0][0].item<float>(), static_cast<float>(call));
    EXPECT_EQ(x.grad()[0][0].item<float>(), static_cast<float>(call));
    EXPECT_FALSE(outside.grad().defined());
  }
  EXPECT_GE(f.stats().hits, 2U);
}

TEST(TensorsThemselves, DataOfATensorFromOutsideIsWritten) {
  const auto outside = torch::zeros({2, 3}).requires_grad_();
  const auto f = aot_function(Function([&](const Tensors& in) {
                                outside.variable_data().mul_(0.5).add_(in[0].detach());
                                return Tensors{in[0] * 2};
                              }),
                              with_kernels());
  float expected = 0;
  for (int call = 0; call < 4; ++call) {
    f(Tensors{leaf(1)})[0].sum().backward();
    expected = expected / 2 + 1;
    EXPECT_EQ(outside[1][1].item<float>(), expected) << call;
    EXPECT_EQ(outside._version(), 0U);
  }
}

// ---- set_, resize_

TEST(TensorsThemselves, SetOfATensorThatWasMade) {
  expect_as_stock(
      [](const Tensors& in) {
        const at::Tensor p = in[0] * 2, q = in[1] * 2;
        p.set_(q);
        p.mul_(2);
        return Tensors{p * q};
      },
      [] {
        return Tensors{torch::ones({2}), torch::full({2}, 3.F)};
      });
}

TEST(TensorsThemselves, SetOfAnArgument) {
  expect_as_stock(
      [](const Tensors& in) {
        const at::NoGradGuard no_grad;
        in[0].set_(in[1]);
        in[1].mul_(2);
        return Tensors{in[0] + in[1]};
      },
      [] {
        return Tensors{torch::ones({2}), torch::full({2}, 3.F)};
      });
}

TEST(TensorsThemselves, ResizeOfAnArgument) {
  expect_as_stock(
      [](const Tensors& in) {
        in[0].resize_({8});
        in[0].fill_(1);
        return Tensors{in[0] * 2};
      },
      [] { return Tensors{torch::zeros({4})}; });
}

TEST(TensorsThemselves, ResizeOfATensorThatWasMade) {
  expect_as_stock(
      [](const Tensors& in) {
        const at::Tensor made = at::empty({0});
        made.resize_({2, 3});
        made.copy_(in[0].detach());
        return Tensors{made * in[0]};
      },
      [] { return Tensors{leaf(3)}; });
}

TEST(TensorsThemselves, AnOpThatResizesWhereItWrites) {
  for (const int64_t size : {0, 6}) {
    expect_as_stock(
        [](const Tensors& in) {
          at::Tensor to = in[1];
          at::add_out(to, in[0], in[0]);
          return Tensors{to * 2};
        },
        [size] {
          return Tensors{torch::ones({6}), torch::zeros({size})};
        });
  }
  expect_as_stock(
      [](const Tensors& in) {
        at::Tensor to = at::empty({0});
        at::add_out(to, in[0], in[0]);
        return Tensors{to * 2};
      },
      [] { return Tensors{torch::ones({6})}; });
}

TEST(TensorsThemselves, AViewInPlaceOfAnArgument) {
  expect_as_stock(
      [](const Tensors& in) {
        in[1].mul_(2);
        in[0].t_();
        return Tensors{in[0] * in[1]};
      },
      [] {
        return Tensors{torch::ones({2, 3}), torch::full({3, 2}, 3.F)};
      });
}

// ---- requires_grad

TEST(TensorsThemselves, RequiresGradOfAViewOfAnArgument) {
  expect_as_stock(
      [](const Tensors& in) {
        const at::Tensor view = in[0].view({-1});
        view.requires_grad_(true);
        return Tensors{view};
      },
      [] {
        return Tensors{torch::ones({2, 2})};
      });
}

TEST(TensorsThemselves, RequiresGradOfAnArgument) {
  for (const bool by_setter : {false, true}) {
    for (const bool now : {false, true}) {
      expect_as_stock(
          [=](const Tensors& in) {
            if (by_setter) {
              in[0].set_requires_grad(now);
            } else {
              in[0].requires_grad_(now);
            }
            return Tensors{in[0] * in[0] + in[1]};
          },
          [=] {
            return Tensors{torch::ones({2, 2}).requires_grad_(!now), torch::ones({2, 2}).requires_grad_()};
          });
    }
  }
}

TEST(TensorsThemselves, DetachOfAnArgumentInPlace) {
  const auto inputs = [] {
    const auto weight = torch::full({2, 2}, 3.F).requires_grad_();
    return Tensors{torch::ones({2, 2}).requires_grad_() * 2, weight};
  };
  expect_as_stock(
      [](const Tensors& in) {
        const at::Tensor before = in[0] * 2 + in[1];
        in[0].detach_();
        return Tensors{in[0] * in[1], before};
      },
      inputs);
  expect_as_stock(
      [](const Tensors& in) {
        in[0].add_(in[1]).detach_();
        return Tensors{in[0] * in[1], in[0]};
      },
      inputs);
  expect_as_stock(
      [](const Tensors& in) {
        in[0].detach_().requires_grad_();
        return Tensors{in[0] * in[1]};
      },
      inputs);
}

TEST(TensorsThemselves, ChangesOfAnArgumentThatIsPassedTwice) {
  for (const bool requires_grad : {false, true}) {
    const auto twice = [requires_grad] {
      const at::Tensor both = torch::arange(6.0).view({2, 3}).requires_grad_(requires_grad) * 1;
      return Tensors{both, both};
    };
    expect_as_stock(
        [](const Tensors& in) {
          in[0].t_();
          return Tensors{in[0] * 2};
        },
        twice);
    expect_as_stock(
        [](const Tensors& in) {
          in[0].detach_();
          return Tensors{in[0] * 2};
        },
        twice);
    expect_as_stock(
        [](const Tensors& in) {
          in[0].set_requires_grad(true);
          return Tensors{in[0] * 2};
        },
        twice);
  }
}

TEST(TensorsThemselves, RequiresGradOfATensorFromOutside) {
  at::Tensor outside;
  const Function function = [&](const Tensors& in) {
    outside.requires_grad_(false);
    return Tensors{in[0] * outside};
  };
  const auto f = aot_function(function, with_kernels());
  for (int call = 0; call < 4; ++call) {
    if (call % 2 == 0) outside = leaf(2);
    outside.requires_grad_(true);
    f(Tensors{leaf(3)})[0].sum().backward();
    EXPECT_FALSE(outside.requires_grad()) << call;
    EXPECT_FALSE(outside.grad().defined()) << call;
  }
}

// The function may change requires_grad of tensors that it creates itself.
TEST(TensorsThemselves, RequiresGradOfATensorThatWasMade) {
  const Function function = [](const Tensors& in) {
    const at::Tensor at = in[0].detach().clone().requires_grad_();
    return Tensors{torch::autograd::grad({(at * at * at).sum()}, {at})[0] * in[0]};
  };
  expect_as_stock(function, [] { return Tensors{leaf(2)}; });
  const auto f = aot_function(function, with_kernels());
  for (int call = 0; call < 3; ++call) f(Tensors{leaf(2)})[0].sum().backward();
  EXPECT_EQ(f.stats().hits, 2U);
}

// ---- .grad

TEST(TensorsThemselves, GradOfAnArgument) {
  const std::vector<Function> functions = {
      [](const Tensors& in) { return Tensors{in[0].detach() - in[0].grad() * 0.1}; },
      [](const Tensors& in) { return Tensors{in[0].grad().defined() ? in[0] * 2 : in[0] * 3}; },
      [](const Tensors& in) {
        in[0].mutable_grad() = at::Tensor();
        return Tensors{in[0] * 2};
      },
  };
  float value = 0;
  for (const Function& function : functions) {
    expect_as_stock(function, [&] {
      const at::Tensor x = leaf(3);
      x.mutable_grad() = torch::full({2, 3}, value);
      return Tensors{x};
    });
    value += 1;
  }
  // First without a gradient, later with one.
  const auto f = aot_function(functions[1], with_kernels());
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = leaf(3);
    if (call > 1) x.mutable_grad() = torch::ones({2, 3});
    EXPECT_EQ(f(Tensors{x})[0][0][0].item<float>(), call > 1 ? 6 : 9) << call;
  }
}

}  // namespace
}  // namespace hindcast::tests::tensors_themselves_test
