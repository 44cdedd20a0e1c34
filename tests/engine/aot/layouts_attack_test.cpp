// Channels-last programs with kernels, in situations chosen because they could go wrong.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <hindcast/aot.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "codegen/kernel/backend.h"
#include "codegen/layouts/channels_last.h"
#include "tests/engine/aot/joint_programs.h"

namespace hindcast::tests {
namespace {

struct Attack {
  std::string name;
  Function function;
  Sizes sizes;  // of the inputs, all of which require a gradient
};
void PrintTo(const Attack& of, std::ostream* to) { *to << of.name; }

at::Tensor conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride = 1, int64_t padding = 1) {
  return at::conv2d(x, weight, {}, stride, padding);
}
at::Tensor normed(const at::Tensor& x, bool is_training) {
  const at::Tensor mean = at::full({x.size(1)}, 0.25), variance = at::full({x.size(1)}, 2.0);
  return at::batch_norm(x, {}, {}, mean, variance, is_training, 0.1, 1e-5, false);
}

const Sizes kTwo = {{2, 8, 6, 6}, {8, 8, 3, 3}};
const Sizes kThree = {{2, 8, 6, 6}, {8, 8, 3, 3}, {8, 8, 3, 3}};

const std::vector<Attack>& attacks() {
  static const std::vector<Attack> all = {
      {"places_of_a_pooling",
       [](const Tensors& x) {
         const auto [y, places] = at::max_pool2d_with_indices(conv(x[0], x[1]), {2, 2});
         return Tensors{y.relu(), places};
       },
       kTwo},
      {"places_that_are_read",
       [](const Tensors& x) {
         const auto [y, places] = at::max_pool2d_with_indices(conv(x[0], x[1]), {2, 2});
         return Tensors{at::max_unpool2d(y, places, {6, 6}), y.flatten() * places.view({-1}).to(at::kFloat)};
       },
       kTwo},
      {"tied_autoencoder",
       [](const Tensors& x) { return Tensors{at::conv_transpose2d(conv(x[0], x[1]).relu(), x[1], {}, 1, 1).tanh()}; },
       {{2, 5, 6, 6}, {8, 5, 3, 3}}},
      {"one_weight_at_two_sizes",
       [](const Tensors& x) {
         return Tensors{conv(conv(x[0], x[1]).tanh(), x[1], 2), conv(x[2], x[1], 1, 0).tanh()};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {2, 8, 3, 3}}},
      {"one_weight_and_image_at_two_strides",
       [](const Tensors& x) {
         return Tensors{conv(x[0], x[1]).tanh(), conv(x[0], x[1], 5, 0).tanh(), conv(x[0], x[1], 2).sin()};
       },
       kTwo},
      {"one_weight_also_for_points",
       [](const Tensors& x) {
         return Tensors{conv(x[0].view({2, 8, 6, 6}), x[1]).tanh(), conv(x[2], x[1], 1, 2).tanh()};
       },
       {{2, 288}, {8, 8, 3, 3}, {2, 8, 1, 1}}},
      {"one_weight_at_many_steps",
       [](const Tensors& x) {
         at::Tensor state = conv(x[0].detach(), x[1]);
         for (int i = 0; i < 2; ++i) state = conv((state.tanh().flatten(1) + x[2]).view({2, 8, 6, 6}), x[1]);
         return Tensors{state};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {2, 288}}},
      {"norm_of_evaluation", [](const Tensors& x) { return Tensors{conv(normed(conv(x[0], x[1]), false).relu(), x[2])}; }, kThree},
      {"norm_that_counts", [](const Tensors& x) { return Tensors{conv(normed(conv(x[0], x[1]), true).relu(), x[2])}; }, kThree},
      {"group_norm", [](const Tensors& x) { return Tensors{conv(at::group_norm(conv(x[0], x[1]), 4).relu(), x[2])}; }, kThree},
      {"layer_norm",
       [](const Tensors& x) {
         return Tensors{conv(at::layer_norm(conv(x[0], x[1]), {6, 6}).relu(), x[2])};
       },
       kThree},
      {"two_types",
       [](const Tensors& x) {
         const at::Tensor y = conv(x[0], x[1]), narrow = y.to(at::kBFloat16);
         return Tensors{(narrow * y).to(at::kFloat) + y, narrow.relu() + 1, y.to(at::kDouble) * y};
       },
       kTwo},
      {"masks_that_lie_otherwise",
       [](const Tensors& x) {
         const at::Tensor y = conv(x[0], x[1]), mask = x[2] > 0;
         return Tensors{mask * y, at::where(mask, x[2], y), mask.bitwise_and(y > 0) * y.sin(), conv(mask * y, x[1])};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {2, 8, 6, 6}}},
      {"operands_that_lie_otherwise",
       [](const Tensors& x) {
         const at::Tensor y = conv(x[0], x[1]), turned = x[2].transpose(2, 3), wide = x[3].expand({2, 8, 6, 6});
         return Tensors{turned * y, y - turned.sin(), wide * y, conv((y + wide) * turned, x[1])};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {2, 8, 6, 6}, {8, 1, 6}}},
      {"results_that_are_views",
       [](const Tensors& x) {
         const at::Tensor y = conv(x[0], x[1]).relu();
         return Tensors{y.view({2, -1}), y.permute({0, 2, 3, 1}), y.select(1, 2), y.slice(3, 1, 4)};
       },
       kTwo},
      {"rows_and_columns",
       [](const Tensors& x) {
         const at::Tensor y = conv(x[0], x[1]);
         return Tensors{at::softmax(y, 1) * y, at::softmax(y, 3), y.cumsum(2), y.amax(1), y.sum() * y, y.flip({3})};
       },
       kTwo},
      {"other_ops_of_images",
       [](const Tensors& x) {
         const at::Tensor y = conv(x[0], x[1]);
         return Tensors{at::upsample_nearest2d(y, {12, 12}), at::pixel_shuffle(y, 2), at::constant_pad_nd(y, {1, 1, 0, 2}).tanh(),
                        std::get<0>(at::adaptive_max_pool2d(y, {2, 2})) * 2, at::adaptive_avg_pool2d(y.relu(), {2, 3})};
       },
       kTwo},
      {"images_of_two_rows",
       [](const Tensors& x) { return Tensors{conv(conv(x[0], x[1]).relu(), x[2]) * x[0].sum(1, true)}; },
       {{2, 8, 2, 9}, {8, 8, 3, 3}, {8, 8, 3, 3}}},
      {"one_channel_between",
       [](const Tensors& x) { return Tensors{conv(conv(conv(x[0], x[1]).relu(), x[2]).tanh() + 1, x[3]).relu()}; },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {1, 8, 3, 3}, {8, 1, 3, 3}}},
      {"written_and_read_again",
       [](const Tensors& x) {
         at::Tensor y = conv(x[0], x[1]);
         const at::Tensor before = y.clone();
         y.add_(x[2]);
         y.mul_(x[2].mean({2, 3}, true).detach());
         y.relu_();
         return Tensors{conv(y, x[1]) + before, y};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {2, 8, 6, 6}}},
      {"written_by_a_part_of_it",
       [](const Tensors& x) {
         at::Tensor y = conv(x[0], x[1]).clone();
         y.narrow(1, 0, 4).copy_(conv(x[0], x[2]).narrow(1, 4, 4));
         return Tensors{conv(y.relu_(), x[2]), y};
       },
       kThree},
  };
  return all;
}

class LayoutAttacks : public testing::TestWithParam<Attack> {};

TEST_P(LayoutAttacks, ComputeTheSameWithKernels) {
  const capture::Joint joint = joint_of(GetParam().function, leaves_of(GetParam().sizes, 1));
  const auto last = codegen::with_channels_last(joint, codegen::backend_of(c10::kCPU)->cost_model());
  ASSERT_TRUE(last);
  EXPECT_GT(last->joint.graph->instrs.size(), joint.graph->instrs.size());
  for (const bool with_mkldnn : {true, false}) {
    at::globalContext().setUserEnabledMkldnn(with_mkldnn);
    for (const double budget : {1.0, 0.0}) {
      SCOPED_TRACE(std::to_string(with_mkldnn) + ", " + std::to_string(budget));
      Tensors given;
      for (const at::Tensor& input : leaves_of(GetParam().sizes, 2)) given.push_back(input.detach());
      for (const capture::ValueId primal : joint.primal_values().subspan(given.size()))
        given.push_back(random_like(joint, primal).fill_(0.5));
      for (const capture::ValueId tangent : joint.tangent_values()) given.push_back(random_like(joint, tangent));
      const Tensors expected = joint.graph->run(given), seen = run_with_kernels(last->joint, given, budget);
      ASSERT_EQ(expected.size(), seen.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE(i);
        ASSERT_EQ(expected[i].defined(), seen[i].defined());
        if (!expected[i].defined()) continue;
        EXPECT_EQ(strides_that_matter(expected[i]), strides_that_matter(seen[i]));
        // The rounding error of a sum is relative to its largest term.
        const double largest = expected[i].abs().max().to(at::kDouble).item<double>();
        const double error = (expected[i] - seen[i]).abs().max().to(at::kDouble).item<double>();
        EXPECT_LE(error, (expected[i].scalar_type() == at::kBFloat16 ? 1e-2 : 1e-4) * largest);
      }
    }
  }
  at::globalContext().setUserEnabledMkldnn(true);
}

std::string name_of(const testing::TestParamInfo<Attack>& of) { return of.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, LayoutAttacks, testing::ValuesIn(attacks()), name_of);

// ---- whole functions, whichever layout is chosen

Tensors residual(const Tensors& x) {
  const at::Tensor first = at::batch_norm(conv(x[0], x[1]), {}, {}, {}, {}, true, 0.1, 1e-5, false).relu();
  return {(conv(first, x[2]) + x[0]).relu(), first.mean({2, 3})};
}

AotOptions with(bool async) {
  AotOptions options;
  options.async = async;
  options.partition = partition::min_cut;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  return options;
}

class LayoutsOfCalls : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { wait(); }

  static auto compiled(const AotOptions& options) {
    return aot_function(
        [](at::Tensor a, at::Tensor b, at::Tensor c) {
          const Tensors results = residual({a, b, c});
          return std::make_tuple(results[0], results[1]);
        },
        options);
  }
  static void expect_close(const at::Tensor& seen, const at::Tensor& expected) {
    ASSERT_EQ(seen.sizes(), expected.sizes());
    EXPECT_TRUE(at::allclose(seen, expected, 1e-3, 1e-3)) << (seen - expected).abs().max();
  }
};

// A layout is chosen for a program fitted to two sizes too, and the program serves sizes between and beyond.
TEST_P(LayoutsOfCalls, AtManySizes) {
  const auto function = compiled(with(GetParam()));
  int step = 0;
  for (const auto& [batch, side] : std::vector<std::pair<int64_t, int64_t>>{
           {4, 8}, {4, 8}, {6, 8}, {6, 8}, {5, 8}, {9, 8}, {1, 8}, {7, 8}, {7, 5}, {7, 9}, {4, 7}, {2, 1}, {2, 2}, {1, 1}, {3, 30}}) {
    SCOPED_TRACE(std::to_string(batch) + ", " + std::to_string(side));
    const Tensors ours = leaves_of({{batch, 16, side, side}, {16, 16, 3, 3}, {16, 16, 3, 3}}, static_cast<uint64_t>(step++));
    Tensors stock;
    for (const at::Tensor& each : ours) stock.push_back(each.detach().clone().requires_grad_());
    for (int i = 0; i < 2; ++i) {
      if (batch * side * side == 1) continue;  // LibTorch refuses to take the norm of one value
      const auto [first, second] = function(ours[0], ours[1], ours[2]);
      const Tensors expected = residual(stock);
      expect_close(first, expected[0]);
      expect_close(second, expected[1]);
      ((first * first).sum() + second.sin().sum()).backward();
      ((expected[0] * expected[0]).sum() + expected[1].sin().sum()).backward();
      for (size_t j = 0; j < 3; ++j) {
        EXPECT_TRUE(at::allclose(ours[j].grad(), stock[j].grad(), 1e-2, 1e-2)) << j << (ours[j].grad() - stock[j].grad()).abs().max();
        EXPECT_EQ(ours[j].grad().strides(), stock[j].grad().strides());
      }
      if (step % 3 == 0) wait();
    }
  }
}

// Gradients flow into one result, the other, and both; in layouts of their own; twice; and are differentiated again.
TEST_P(LayoutsOfCalls, WithManyKindsOfBackward) {
  const auto function = compiled(with(GetParam()));
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(i);
    const Tensors ours = leaves_of({{4, 16, 8, 8}, {16, 16, 3, 3}, {16, 16, 3, 3}}, static_cast<uint64_t>(i));
    Tensors stock;
    for (const at::Tensor& each : ours) stock.push_back(each.detach().clone().requires_grad_());
    const auto [first, second] = function(ours[0], ours[1], ours[2]);
    const Tensors expected = residual(stock);
    if (i == 10) wait();
    const at::Tensor into = i % 2 == 0 ? at::randn({4, 16, 8, 8}) : at::randn({4, 16, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
    const auto gradients_of = [&](const at::Tensor& a, const at::Tensor& b, const Tensors& inputs) {
      const bool twice = i % 4 == 3, again = i % 6 == 5;
      const Tensors roots = i % 3 == 0 ? Tensors{a} : i % 3 == 1 ? Tensors{b} : Tensors{a, b};
      const Tensors grads = i % 3 == 0 ? Tensors{into} : i % 3 == 1 ? Tensors{at::ones_like(b)} : Tensors{into, at::ones_like(b)};
      // The second weight has no part in the second result.
      Tensors found = torch::autograd::grad(roots, inputs, grads, twice || again, again, /*allow_unused=*/true);
      if (twice && !again) found = torch::autograd::grad(roots, inputs, grads, {}, false, /*allow_unused=*/true);
      if (again) found = torch::autograd::grad({found[0].square().sum()}, inputs, {}, {}, false, /*allow_unused=*/true);
      return found;
    };
    const Tensors seen = gradients_of(first, second, ours), known = gradients_of(expected[0], expected[1], stock);
    for (size_t j = 0; j < 3; ++j) {
      const at::Tensor a = seen[j].defined() ? seen[j] : at::zeros_like(ours[j]),
                       b = known[j].defined() ? known[j] : at::zeros_like(ours[j]);
      EXPECT_TRUE(at::allclose(a, b, 1e-2, 1e-2 * (1 + b.abs().max().item<double>()))) << j << ": " << (a - b).abs().max();
    }
  }
}

// Results belong to the caller: it may write to them, and hooks may see the gradients.
TEST_P(LayoutsOfCalls, WhoseResultsAreWrittenTo) {
  AotOptions options = with(GetParam());
  options.check_every = 3;
  const auto function = compiled(options);
  Options engine;
  engine.async = false;
  engine.compiler = compilers::fused();
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const Tensors ours = leaves_of({{4, 16, 8, 8}, {16, 16, 3, 3}, {16, 16, 3, 3}}, static_cast<uint64_t>(i));
    Tensors stock;
    for (const at::Tensor& each : ours) stock.push_back(each.detach().clone().requires_grad_());
    const auto run = [&](at::Tensor first, const at::Tensor& second) {
      first.register_hook([](const at::Tensor& gradient) { return gradient.contiguous(at::MemoryFormat::ChannelsLast) * 2; });
      const at::Tensor loss = (first.sin() * second.view({4, 16, 1, 1})).sum();
      loss.backward();
    };
    {
      const auto guard = i % 2 == 0 ? std::optional<Guard>(enable(engine)) : std::nullopt;
      auto [first, second] = function(ours[0], ours[1], ours[2]);
      run(first, second);
      const at::NoGradGuard no_grad;
      first.fill_(0);
      second.fill_(0);
    }
    const Tensors expected = residual(stock);
    run(expected[0], expected[1]);
    for (size_t j = 0; j < 3; ++j)
      EXPECT_TRUE(at::allclose(ours[j].grad(), stock[j].grad(), 1e-2, 1e-2)) << j << (ours[j].grad() - stock[j].grad()).abs().max();
  }
}

INSTANTIATE_TEST_SUITE_P(Async, LayoutsOfCalls, testing::Bool());

}  // namespace
}  // namespace hindcast::tests
