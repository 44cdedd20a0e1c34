// Programs whose convolutions run channels-last compute the same values, in results of the same layout as before.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <hindcast/aot.h>
#include <hindcast/hindcast.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel/backend.h"
#include "codegen/layouts/channels_last.h"
#include "codegen/partition/min_cut.h"
#include "engine/compile/background.h"
#include "tests/engine/aot/joint_programs.h"
#include "tests/support/in_child.h"

namespace hindcast::tests::layouts_test {
namespace {

struct Case {
  std::string name;
  Function function;
  Sizes sizes;  // of the inputs, all of which require a gradient
  bool has_choice = true;
  at::ScalarType type = at::kFloat;
};
void PrintTo(const Case& of, std::ostream* to) { *to << of.name; }

at::Tensor conv(const at::Tensor& x, const at::Tensor& weight, int64_t stride = 1, int64_t padding = 1, int64_t groups = 1) {
  return at::conv2d(x, weight, {}, stride, padding, 1, groups);
}
at::Tensor normed(const at::Tensor& x) { return at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"one", [](const Tensors& x) { return Tensors{conv(x[0], x[1])}; }, {{2, 8, 9, 7}, {16, 8, 3, 3}}},
      {"one_channel", [](const Tensors& x) { return Tensors{conv(x[0], x[1]).relu()}; }, {{2, 1, 9, 7}, {8, 1, 3, 3}}, false},
      {"two_from_one_channel",
       [](const Tensors& x) { return Tensors{conv(conv(x[0], x[1]).relu(), x[2])}; },
       {{2, 1, 9, 7}, {8, 1, 3, 3}, {8, 8, 3, 3}}},
      {"bias",
       [](const Tensors& x) {
         return Tensors{at::conv2d(x[0], x[1], x[2], at::IntArrayRef({2, 1}), at::IntArrayRef({0, 2}), at::IntArrayRef({1, 2}))};
       },
       {{3, 8, 12, 11}, {8, 8, 3, 3}, {8}}},
      {"depthwise",
       [](const Tensors& x) { return Tensors{conv(conv(x[0], x[1], 1, 1, 8), x[2], 1, 0)}; },
       {{2, 8, 9, 9}, {8, 1, 3, 3}, {16, 8, 1, 1}}},
      {"residual",
       [](const Tensors& x) {
         const at::Tensor first = normed(conv(x[0], x[1])).relu(), second = normed(conv(first, x[2]));
         return Tensors{at::adaptive_avg_pool2d((second + x[0]).relu(), {1, 1}).flatten(1).mm(x[3])};
       },
       {{4, 8, 8, 8}, {8, 8, 3, 3}, {8, 8, 3, 3}, {8, 5}}},
      {"flattened",
       [](const Tensors& x) {
         const at::Tensor y = at::max_pool2d(conv(x[0], x[1]).relu(), 2);
         return Tensors{y.view({y.size(0), -1}).mm(x[2])};
       },
       {{4, 8, 8, 8}, {4, 8, 3, 3}, {64, 5}}},
      {"in_place",
       [](const Tensors& x) {
         at::Tensor y = conv(x[0], x[1]);
         y.mul_(2).add_(x[0]).relu_();
         return Tensors{conv(y, x[2])};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {8, 8, 3, 3}}},
      {"written_in_part",
       [](const Tensors& x) {
         at::Tensor y = conv(x[0], x[1]);
         y.select(1, 0).zero_();
         y.view({2, -1}).narrow(1, 20, 30).mul_(3);
         return Tensors{conv(y, x[2])};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {8, 8, 3, 3}}},
      {"masked",
       [](const Tensors& x) {
         const at::Tensor y = conv(x[0], x[1]);
         return Tensors{at::where(y > 0, y, y * 0.1) * (y < 1), y};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}}},
      {"cat_and_sum",
       [](const Tensors& x) {
         const at::Tensor y = at::cat({conv(x[0], x[1]), conv(x[0], x[2])}, 1);
         return Tensors{y.sum(at::IntArrayRef({0, 2})), y.permute({0, 2, 3, 1}) * x[3], y.mean(at::IntArrayRef({2, 3}), true) + y};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {4, 8, 3, 3}, {12}}},
      {"broadcast",
       [](const Tensors& x) {
         const at::Tensor y = conv(x[0], x[1]), gate = at::sigmoid(conv(y.mean(at::IntArrayRef({2, 3}), true), x[2], 1, 0));
         return Tensors{y * gate + x[3].view({1, 8, 1, 1})};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {8, 8, 1, 1}, {8}}},
      {"as_strided",
       [](const Tensors& x) {
         return Tensors{conv(x[0], x[1]).as_strided({4, 5}, {7, 2}, 3) * 2};
       },
       {{2, 8, 6, 6}, {8, 8, 3, 3}}},
      {"pooled",
       [](const Tensors& x) {
         const at::Tensor y = at::avg_pool2d(conv(x[0], x[1]), {3, 3}, {2, 2}, {1, 1});
         return Tensors{at::max_pool2d(at::gelu(y), {2, 2}, {1, 1})};
       },
       {{2, 8, 11, 9}, {8, 8, 3, 3}}},
      {"image_of_one_point",
       [](const Tensors& x) { return Tensors{conv(conv(x[0], x[1]).tanh(), x[2])}; },
       {{3, 8, 1, 1}, {8, 8, 3, 3}, {8, 8, 3, 3}},
       false},
      {"one_image",
       [](const Tensors& x) { return Tensors{conv(conv(x[0], x[1]).tanh(), x[2])}; },
       {{1, 8, 7, 9}, {8, 8, 3, 3}, {8, 8, 3, 3}},
       false},
      {"images_of_one_row", [](const Tensors& x) { return Tensors{conv(x[0], x[1]).tanh()}; }, {{3, 8, 1, 9}, {8, 8, 3, 3}}, false},
      {"shared_weight", [](const Tensors& x) { return Tensors{conv(conv(x[0], x[1]).tanh(), x[1])}; }, {{3, 8, 6, 6}, {8, 8, 3, 3}}},
      {"transposed",
       [](const Tensors& x) { return Tensors{at::conv_transpose2d(x[0], x[1], {}, 2)}; },
       {{2, 8, 6, 6}, {8, 8, 3, 3}},
       false},
      {"one_of_two_transposed",
       [](const Tensors& x) { return Tensors{at::conv_transpose2d(conv(x[0], x[1]).relu(), x[2], {}, 2)}; },
       {{2, 8, 6, 6}, {8, 8, 3, 3}, {8, 8, 3, 3}}},
      {"no_image", [](const Tensors& x) { return Tensors{at::conv1d(x[0], x[1])}; }, {{2, 8, 16}, {8, 8, 3}}, false},
      {"float64", [](const Tensors& x) { return Tensors{conv(x[0], x[1])}; }, {{2, 8, 6, 6}, {8, 8, 3, 3}}, false, at::kDouble},
      {"empty", [](const Tensors& x) { return Tensors{conv(x[0], x[1])}; }, {{0, 8, 6, 6}, {8, 8, 3, 3}}, false},
      {"channels_last_already",
       [](const Tensors& x) { return Tensors{conv(x[0].contiguous(at::MemoryFormat::ChannelsLast), x[1])}; },
       {{2, 8, 6, 6}, {8, 8, 3, 3}},
       false},
  };
  return all;
}

Tensors inputs_of(const Case& of, uint64_t seed) { return leaves_of(of.sizes, seed, of.type); }
capture::Joint traced(const Case& of) { return joint_of(of.function, inputs_of(of, 1)); }

const codegen::CostModel& costs() { return codegen::backend_of(c10::kCPU)->cost_model(); }

class Layouts : public testing::TestWithParam<Case> {};

TEST_P(Layouts, ComputeTheSame) {
  const capture::Joint joint = traced(GetParam());
  const auto last = codegen::with_channels_last(joint, costs());
  const bool has_other = last && last->joint.graph->instrs.size() != joint.graph->instrs.size();
  EXPECT_EQ(has_other, GetParam().has_choice);
  if (!last) return;
  const auto parts = codegen::min_cut(last->joint, {});  // a partition accepts it
  EXPECT_NE(parts.backward, nullptr);
  for (uint64_t seed = 2; seed < 4; ++seed) {
    Tensors given;
    for (const at::Tensor& input : inputs_of(GetParam(), seed)) given.push_back(input.detach());
    for (const capture::ValueId tangent : joint.tangent_values()) given.push_back(random_like(joint, tangent));
    const Tensors expected = joint.graph->run(given), seen = last->joint.graph->run(given);
    ASSERT_EQ(expected.size(), seen.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_EQ(expected[i].defined(), seen[i].defined());
      if (!expected[i].defined()) continue;
      EXPECT_EQ(strides_that_matter(expected[i]), strides_that_matter(seen[i]));
      EXPECT_TRUE(at::allclose(expected[i], seen[i], 1e-4, 1e-4)) << (expected[i] - seen[i]).abs().max();
    }
  }
}

std::string name_of(const testing::TestParamInfo<Case>& of) { return of.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, Layouts, testing::ValuesIn(cases()), name_of);

Tensors convolved_and_normed(const Tensors& x) { return {at::batch_norm(conv(x[0], x[1]), x[2], x[3], {}, {}, true, 0.1, 1e-5, false)}; }

constexpr double kUnit = 0x1p-24;

double error_of(const at::Tensor& seen, const at::Tensor& truth) {
  return ((seen.to(at::kDouble) - truth).abs().max() / truth.abs().max()).item<double>();
}

// LibTorch's own statistics lose a digit channels-last. The convolution is the identity, so only the gradient of its weight sums anything
// itself.
TEST(LayoutsOfFunctions, BatchNormsAreAsExact) {
  const Sizes sizes = {{16, 32, 24, 24}, {32, 32, 1, 1}, {32}, {32}};
  const auto function = [](const Tensors& x) {
    return Tensors{at::batch_norm(at::conv2d(x[0], x[1]), x[2], x[3], {}, {}, true, 0.1, 1e-5, false)};
  };
  const capture::Joint joint = joint_of(function, leaves_of(sizes, 1));
  const auto last = codegen::with_channels_last(joint, costs());
  ASSERT_TRUE(last.has_value());
  for (uint64_t seed = 2; seed < 10; ++seed) {
    Tensors given, exact, leaves;
    for (const at::Tensor& leaf : leaves_of(sizes, seed)) given.push_back(leaf.detach() + 1);
    given[0] += std::pow(10., static_cast<double>(seed / 2 - 1));  // means of 2 to 1,001 deviations
    given[1] = at::eye(32).view({32, 32, 1, 1});
    given.push_back(random_like(joint, joint.tangent_values()[0]));
    for (const at::Tensor& tensor : given) exact.push_back(tensor.to(at::kDouble));
    leaves = {exact.begin(), exact.end() - 1};
    for (const at::Tensor& leaf : leaves) leaf.requires_grad_();
    Tensors truth = function(leaves);
    for (const at::Tensor& gradient : torch::autograd::grad(truth, leaves, {exact.back()})) truth.push_back(gradient);
    const Tensors stock = joint.graph->run(given), ours = run_with_kernels(last->joint, given);
    ASSERT_EQ(truth.size(), ours.size());
    for (const size_t i : {0, 1, 3, 4})
      EXPECT_LE(error_of(ours[i], truth[i]), 2 * error_of(stock[i], truth[i]) + 4 * kUnit) << seed << ", " << i;
  }
}

// No kernels exist for sums over so few channels.
TEST(LayoutsOfFunctions, BatchNormsOfFewChannelsStay) {
  const auto joint_with = [](int64_t channels) {
    return joint_of(convolved_and_normed, leaves_of({{4, 8, 24, 24}, {channels, 8, 3, 3}, {channels}, {channels}}, 1));
  };
  EXPECT_FALSE(codegen::with_channels_last(joint_with(12), costs()).has_value());
  EXPECT_TRUE(codegen::with_channels_last(joint_with(16), costs()).has_value());
}

// Nor for images whose dims of one element make the layout ambiguous.
TEST(LayoutsOfFunctions, BatchNormsOfSinglePointsStay) {
  const auto function = [](const Tensors& x) {
    const at::Tensor y = conv(x[0], x[1]).relu(), pooled = at::max_pool2d(y, {6, 6});
    return Tensors{at::batch_norm(pooled, {}, {}, {}, {}, true, 0.1, 1e-5, false), y};
  };
  EXPECT_FALSE(codegen::with_channels_last(joint_of(function, leaves_of({{8, 16, 6, 6}, {16, 16, 3, 3}}, 1)), costs()).has_value());
}

// Also if the number of images changes, and with it the factor of the variance.
TEST(LayoutsOfFunctions, RunningStatisticsMove) {
  const Tensors ours = {at::zeros({16}), at::ones({16})}, stock = {at::zeros({16}), at::ones({16})};
  const auto with = [](const Tensors& running) {
    return [running](at::Tensor x, at::Tensor weight) {
      return at::batch_norm(conv(x, weight), {}, {}, running[0], running[1], true, 0.1, 1e-5, false).relu();
    };
  };
  AotOptions options;
  options.partition = partition::min_cut;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.async = false;
  const auto compiled = aot_function(with(ours), options);
  for (const int64_t images : {4, 4, 4, 6, 6, 5, 9, 4}) {
    SCOPED_TRACE(images);
    const Tensors leaves = leaves_of({{images, 16, 6, 6}, {16, 16, 3, 3}}, static_cast<uint64_t>(images));
    const at::Tensor result = compiled(leaves[0], leaves[1]), expected = with(stock)(leaves[0], leaves[1]);
    EXPECT_TRUE(at::allclose(result, expected, 1e-4, 1e-5));
    const Tensors seen = torch::autograd::grad({result.sin().sum()}, leaves), known = torch::autograd::grad({expected.sin().sum()}, leaves);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::allclose(seen[i], known[i], 1e-3, 1e-4)) << (seen[i] - known[i]).abs().max();
      EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-5, 1e-6)) << (ours[i] - stock[i]).abs().max();
    }
  }
}

// A fork has no OpenMP threads, and LibTorch's convolutions would wait for them.
TEST(LayoutsOfFunctions, AForkedChildMeasuresNothing) {
  at::set_num_threads(2);
  auto may_go_on = std::make_shared<std::atomic<bool>>(false);
  engine::run_in_background({.run = [may_go_on] { may_go_on->wait(false); }});
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  const auto compiled = aot_function([](at::Tensor x, at::Tensor weight) { return conv(conv(x, weight).relu(), weight); }, options);
  const Tensors leaves = leaves_of({{4, 16, 21, 23}, {16, 16, 3, 3}}, 1);
  compiled(leaves[0], leaves[1]).sum().backward();  // what follows it waits behind the job
  const auto go_on = [&] {
    *may_go_on = true;
    may_go_on->notify_all();
    wait();
    return 0;
  };
  EXPECT_EQ(in_child([&] {
              alarm(60);
              return go_on();
            }),
            0);
  go_on();
}

// Whichever layout is chosen, and while it is being chosen.
TEST(LayoutsOfFunctions, TrainAlike) {
  const Case& of = cases()[5];
  for (const bool async : {false, true}) {
    AotOptions options;
    options.async = async;
    options.partition = partition::min_cut;
    options.fw_compiler = options.bw_compiler = compilers::fused();
    const Tensors ours = inputs_of(of, 1), stock = inputs_of(of, 1);
    const auto compiled = aot_function(
        [&](at::Tensor a, at::Tensor b, at::Tensor c, at::Tensor d) {
          return of.function({a, b, c, d})[0];
        },
        options);
    for (int i = 0; i < 12; ++i) {
      const at::Tensor result = compiled(ours[0], ours[1], ours[2], ours[3]), expected = of.function(stock)[0];
      EXPECT_TRUE(at::allclose(result, expected, 1e-4, 1e-5));
      result.square().sum().backward();
      expected.square().sum().backward();
      for (size_t j = 0; j < ours.size(); ++j) {
        EXPECT_TRUE(at::allclose(ours[j].grad(), stock[j].grad(), 1e-3, 1e-4)) << i << ", " << j;
        EXPECT_EQ(ours[j].grad().strides(), stock[j].grad().strides());
      }
      if (i == 6) wait();
    }
    EXPECT_EQ(compiled.stats().traces, 1u);
  }
}

}  // namespace
}  // namespace hindcast::tests::layouts_test
