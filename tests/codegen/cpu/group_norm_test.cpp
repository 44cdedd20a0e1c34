// Group norms in one kernel with the ops around them: a row has several channels, each with its own weight and sum.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/calls_left.h"

namespace hindcast::tests::group_norm_test {
namespace {

using testing::Contains;
using testing::Not;
using Tensors = std::vector<at::Tensor>;

constexpr const char* kBackward = "aten::native_group_norm_backward";

struct Norm {
  at::DimVector sizes;
  int64_t groups;
};

std::ostream& operator<<(std::ostream& out, const Norm& norm) { return out << at::IntArrayRef(norm.sizes) << " in " << norm.groups; }

Tensors grads_of(const Tensors& leaves) {
  Tensors grads;
  for (const at::Tensor& leaf : leaves) grads.push_back(leaf.grad());
  return grads;
}

// A norm's gradient is a difference of nearly equal terms.
const NearGrads kOfDifferences{.units_in_double = 64};

/// silu(norm(x) + x) with a loss of both signs.
Tensors block(const Norm& norm, at::TensorOptions options, bool affine = true) {
  const auto x = near_leaf(norm.sizes, options);
  const auto weight = near_leaf({norm.sizes[1]}, options), bias = near_leaf({norm.sizes[1]}, options);
  const auto y = affine ? at::group_norm(x, norm.groups, weight, bias) : at::group_norm(x, norm.groups);
  (at::silu(y + x) * at::randn(norm.sizes).to(options.dtype())).sum().backward();
  return affine ? grads_of({x, weight, bias}) : grads_of({x});
}

std::vector<std::string> calls_of(const Norm& norm, at::TensorOptions options = at::kFloat) {
  return calls_left([&] { block(norm, options); });
}

// One group, one channel per group, one image, one channel in total; odd images, large ones, and images of one or three dims.
TEST(GroupNorm, IsOneKernelWithWhatIsAroundIt) {
  for (const Norm& norm : {Norm{{3, 8, 5, 5}, 4},
                           {{2, 6, 4, 4}, 1},
                           {{2, 6, 4, 4}, 6},
                           {{1, 8, 6, 6}, 2},
                           {{4, 1, 3, 7}, 1},
                           {{1, 4, 4, 5}, 2},
                           {{2, 12, 7}, 3},
                           {{2, 4, 3, 2, 3}, 2},
                           {{2, 8, 1, 9}, 4},
                           {{2, 8, 40, 30}, 2},
                           {{700, 4, 3, 3}, 2}}) {
    SCOPED_TRACE(norm);
    EXPECT_THAT(calls_of(norm), Not(Contains(kBackward)));
    for (const bool affine : {true, false})
      expect_near_grads([&](at::TensorOptions options) { return block(norm, options, affine); }, kOfDifferences);
  }
}

TEST(GroupNorm, Alone) {
  for (const Norm& norm : {Norm{{3, 8, 5, 5}, 4}, {{2, 6, 4, 4}, 6}}) {
    const auto program = [&](at::TensorOptions options) {
      const auto x = near_leaf(norm.sizes, options), weight = near_leaf({norm.sizes[1]}, options),
                 bias = near_leaf({norm.sizes[1]}, options);
      at::group_norm(x, norm.groups, weight, bias).backward(at::randn(norm.sizes).to(options.dtype()));
      return grads_of({x, weight, bias});
    };
    EXPECT_THAT(calls_left([&] { program(at::kFloat); }), Not(Contains(kBackward)));
    expect_near_grads(program, kOfDifferences);
  }
}

TEST(GroupNorm, OnlyTheWantedGradients) {
  for (int wanted = 1; wanted < 8; ++wanted) {
    SCOPED_TRACE(wanted);
    const auto program = [&](at::TensorOptions options) {
      Tensors leaves{near_leaf({3, 8, 5, 5}, options), near_leaf({8}, options), near_leaf({8}, options)};
      for (int i = 0; i < 3; ++i) leaves[static_cast<size_t>(i)].requires_grad_(wanted >> i & 1);
      at::silu(at::group_norm(leaves[0], 4, leaves[1], leaves[2])).mul(at::randn({3, 8, 5, 5}).to(options.dtype())).sum().backward();
      std::erase_if(leaves, [](const at::Tensor& leaf) { return !leaf.requires_grad(); });
      return grads_of(leaves);
    };
    EXPECT_THAT(calls_left([&] { program(at::kFloat); }), Not(Contains(kBackward)));
    expect_near_grads(program, kOfDifferences);
  }
}

// Operands of one number per channel, per row and per column, some of them angles.
TEST(GroupNorm, AmongBroadcasts) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({3, 8, 4, 6}, options), scale = near_leaf({3, 8, 1, 1}, options), shift = near_leaf({8, 1, 1}, options);
        const auto column = near_leaf({6}, options), image = near_leaf({3, 1, 1, 1}, options), weight = near_leaf({8}, options);
        const auto y = at::group_norm(x * 2 + column, 2, weight, weight) * scale + shift.sin();
        ((y * image.cos()).tanh() * scale.sin() * x).sum().backward();
        return grads_of({x, scale, shift, column, image, weight});
      },
      kOfDifferences);
}

// A factor for some of the channels' axes, also transposed: the weight has one number for each channel. The gradients of a factor of whole
// groups, which the norm takes away, are nothing but rounding errors.
TEST(GroupNorm, OfFactorsForPartsOfTheChannels) {
  for (const at::DimVector& factor :
       {at::DimVector{3, 1, 1}, {3, 4, 1}, {1, 4, 1}, {2, 1, 1, 1}, {2, 1, 4, 1}, {4, 1, 1, 1, 1}, {4, 1, 3, 1, 1}}) {
    for (const bool is_transposed : {false, true}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(factor) << is_transposed);
      expect_near_grads(
          [&](at::TensorOptions options) {
            const auto x = near_leaf({4, 24, 81}, options), weight = near_leaf({24}, options);
            auto scale = near_leaf(factor, options).detach();
            if (is_transposed) scale = scale.transpose(0, 1).contiguous().transpose(0, 1);
            const auto y = (x.view({4, 2, 3, 4, 81}) * scale).view({4, 24, 81});
            at::group_norm(y, 2, weight).square().sum().backward();
            return grads_of({x, weight});
          },
          kOfDifferences);
    }
  }
}

TEST(GroupNorm, AfterAnother) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({3, 8, 5, 5}, options), w1 = near_leaf({8}, options), w2 = near_leaf({8}, options);
        const auto y = at::silu(at::group_norm(x, 4, w1, w2));
        const auto z = at::layer_norm(at::silu(at::group_norm(y, 2, w2, w1)) + x, {8, 5, 5});
        (at::silu(at::group_norm(z, 4, w2)) * x).sum().backward();
        return grads_of({x, w1, w2});
      },
      kOfDifferences);
}

/// From the step's seed, so that both engines get the same.
int64_t any_of_2_to_9() { return at::randint(2, 10, {1}).item<int64_t>(); }

TEST(GroupNorm, BatchAndImagesChangeWithoutAnotherCompile) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const int64_t batch = 3 + any_of_2_to_9(), height = 3 + any_of_2_to_9(), width = 20 + any_of_2_to_9();
        return block({{batch, 16, height, width}, 4}, options);
      },
      {.fused_graphs = 2, .steps = 8, .misses = 2, .units_in_double = 64});
}

TEST(GroupNorm, HooksAreShownItsGradients) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({3, 8, 5, 5}, options), weight = near_leaf({8}, options), bias = near_leaf({8}, options);
        Tensors seen;
        const auto see = [&](const at::Tensor& gradient) { seen.push_back(gradient.clone()); };
        const auto inner = x * 2, normal = at::group_norm(inner, 2, weight, bias);
        inner.register_hook(see);
        normal.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
        weight.register_hook(see);
        (at::silu(normal) * x).sum().backward();
        for (const at::Tensor& gradient : grads_of({x, weight, bias})) seen.push_back(gradient);
        return seen;
      },
      {.misses = 2, .units_in_double = 64});
}

TEST(GroupNorm, AddsToGradientsThatAreThere) {
  for (const int64_t size : {5, 200}) {
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf({3, 8, size, size}, options), weight = near_leaf({8}, options), bias = near_leaf({8}, options);
          for (const at::Tensor& leaf : {x, weight, bias}) leaf.mutable_grad() = at::randn_like(leaf).detach();
          // Both norms have the weight, and one of them has it twice.
          const auto y = at::silu(at::group_norm(x, 2, weight, bias)) + at::silu(at::group_norm(x * 2, 4, weight, weight));
          const auto loss = (y * at::randn_like(x).detach()).sum();
          loss.backward({}, /*retain_graph=*/true);
          loss.backward();
          return grads_of({x, weight, bias});
        },
        kOfDifferences);
  }
}

// Sums over many rows, on all threads, lose no precision to their length.
TEST(GroupNorm, OfManyRowsOnAllThreads) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (const Norm& norm : {Norm{{700, 16, 9, 9}, 4}, {{2, 32, 64, 64}, 32}}) {
      EXPECT_THAT(calls_of(norm), Not(Contains(kBackward)));
      expect_near_grads([&](at::TensorOptions options) { return block(norm, options); }, kOfDifferences);
    }
  }
  at::set_num_threads(before);
}

at::Tensor in_type(const at::Tensor& leaf, at::ScalarType type) { return leaf.detach().to(type).set_requires_grad(true); }

// Kernels compute in float32, and round at most once what ATen rounds between two ops.
TEST(GroupNorm, OfShortFloats) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType type_of_weight : {type, at::kFloat}) {
      SCOPED_TRACE(std::string(c10::toString(type)) + ", weight " + c10::toString(type_of_weight));
      hindcast::reset();
      for (int step = 0; step < 3; ++step) {
        const auto run = [&](at::ScalarType of_values, at::ScalarType of_weight, bool ours) {
          at::manual_seed(static_cast<uint64_t>(step));
          Options options = fused_options();
          options.enabled = ours;
          const auto guard = hindcast::enable(options);
          // All runs get values that the short type represents exactly.
          const auto x = in_type(at::randn({4, 8, 7, 7}).to(type), of_values), weight = in_type(at::randn({8}).to(type), of_weight);
          const auto bias = in_type(at::randn({8}).to(type), of_weight);
          at::silu(at::group_norm(x, 4, weight, bias)).backward(at::randn({4, 8, 7, 7}).to(type).to(of_values));
          return grads_of({x, weight, bias});
        };
        const Tensors truth = run(at::kDouble, at::kDouble, false), stock = run(type, type_of_weight, false),
                      ours = run(type, type_of_weight, true);
        for (size_t i = 0; i < truth.size(); ++i) {
          EXPECT_EQ(ours[i].scalar_type(), stock[i].scalar_type());
          EXPECT_EQ(ours[i].strides(), stock[i].strides());
          const auto error = [&](const at::Tensor& result) { return (result.to(at::kDouble) - truth[i]).abs().max().item<double>(); };
          const double unit = type == at::kHalf ? std::numeric_limits<c10::Half>::epsilon() : std::numeric_limits<c10::BFloat16>::epsilon();
          EXPECT_LE(error(ours[i]), error(stock[i]) + unit * truth[i].abs().max().item<double>()) << "result " << i;
        }
      }
      EXPECT_EQ(hindcast::stats().fused_graphs, 1U);
    }
  }
}

TEST(GroupNorm, ItsKernelsStandUpToVerify) {
  hindcast::reset();
  Options options = fused_options();
  options.verify = true;
  const auto guard = hindcast::enable(options);
  for (const int64_t batch : {3, 5, 6}) block({{batch, 8, 5, 5}, 4}, at::kFloat);
  block({{2, 8, 5, 5}, 4}, at::kBFloat16);
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
  EXPECT_EQ(hindcast::stats().compiler_failures, 0U);
  EXPECT_EQ(hindcast::stats().fused_graphs, 3U);
}

// Channels last; no images; one number per channel.
TEST(GroupNorm, StaysWithAtenWhereItLiesOtherwiseOrHasNothingToSum) {
  const auto of = [](const at::DimVector& sizes, at::MemoryFormat format) {
    return [=](at::TensorOptions options) {
      const auto x = at::randn(sizes).to(options.dtype()).contiguous(format).set_requires_grad(true);
      const auto weight = near_leaf({sizes[1]}, options), bias = near_leaf({sizes[1]}, options);
      at::silu(at::group_norm(x, 1, weight, bias)).mul(at::randn(sizes).to(options.dtype())).sum().backward();
      return grads_of({x, weight, bias});
    };
  };
  const NearGrads near{.fused_graphs = 0, .units_in_double = 64};
  for (const auto& program : {of({3, 8, 5, 5}, at::MemoryFormat::ChannelsLast), of({0, 8, 5, 5}, at::MemoryFormat::Contiguous),
                              of({3, 8, 1, 1}, at::MemoryFormat::Contiguous), of({3, 8}, at::MemoryFormat::Contiguous)}) {
    EXPECT_THAT(calls_left([&] { program(at::kFloat); }), Contains(kBackward));
    expect_near_grads(program, near);
  }
}

// Many runs that fill ATen's vectors but few of the kernel's, or whose remainders are large.
TEST(GroupNorm, StaysWithAtenWhereThatIsFaster) {
  for (const Norm& norm : {Norm{{64, 64, 4, 4}, 8}, {{64, 64, 3, 5}, 8}}) EXPECT_THAT(calls_of(norm), Contains(kBackward)) << norm;
  for (const Norm& norm : {Norm{{64, 64, 8, 8}, 8}, {{64, 64, 3, 3}, 8}, {{8, 64, 4, 4}, 8}})
    EXPECT_THAT(calls_of(norm), Not(Contains(kBackward))) << norm;
  EXPECT_THAT(calls_of({{64, 64, 3, 3}, 8}, at::kBFloat16), Contains(kBackward));
}

}  // namespace
}  // namespace hindcast::tests::group_norm_test
