// Random numbers that a program's kernels draw: their distribution, and that kernels and ATen's ops draw the same.

#include <hindcast/aot.h>
#include <hindcast/graph.h>
#include <hindcast/hindcast.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>

#include "codegen/fuse/random_ops.h"

namespace hindcast::tests::random_numbers_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Tensors = std::vector<at::Tensor>;

AotOptions with_kernels(Partition partition = partition::min_cut) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.partition = std::move(partition);
  options.async = false;
  return options;
}

/// Positive, so that a product is 0 exactly where the noise is.
at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) { return (torch::rand(sizes) + 1).to(type).requires_grad_(); }

/// Traced and compiled: later calls are hits.
template <class Function, class... Args>
auto ready(const Function& function, const AotOptions& options, const Args&... args) {
  auto compiled = aot_function(function, options);
  const at::Tensor result = compiled(args...);
  if (result.requires_grad()) result.sum().backward();
  return compiled;
}

/// The elements of a tensor that dropout keeps.
at::Tensor mask_of(at::IntArrayRef sizes, double p, uint64_t seed) {
  const auto ones = torch::ones(sizes);
  const auto f = ready([p](const at::Tensor& x) { return at::dropout(x, p, true); }, with_kernels(), ones);
  torch::manual_seed(seed);
  const at::Tensor result = f(ones);
  EXPECT_EQ(f.stats().hits, 1U);
  EXPECT_THAT(f.core().programs().at(0).forward->print(), HasSubstr("philox_bernoulli"));
  return result != 0;
}

/// How far the mean of `truth`, whose elements are true with probability `p`, is from `p`, in standard deviations of the mean.
double deviation_of_mean(const at::Tensor& truth, double p) {
  const auto n = static_cast<double>(truth.numel());
  return (truth.to(at::kDouble).mean().item<double>() - p) / std::sqrt(p * (1 - p) / n);
}

// The seeds are fixed: a test that passes once always passes. 4 standard deviations are exceeded once in 16,000 times.
constexpr double kUnlikely = 4;

TEST(RandomNumbers, AreKeptWithTheGivenProbability) {
  for (const double p : {0.001, 0.1, 0.5, 0.9}) {
    for (const uint64_t seed : {1, 2, 3}) {
      EXPECT_LT(std::abs(deviation_of_mean(mask_of({1024, 1024}, p, seed), 1 - p)), kUnlikely) << p << ", seed " << seed;
    }
  }
}

TEST(RandomNumbers, AreScaled) {
  const auto x = torch::ones({64, 100});
  const auto f = ready([](const at::Tensor& in) { return at::dropout(in, 0.3, true); }, with_kernels(), x);
  const at::Tensor y = f(x);
  EXPECT_TRUE(((y == 0) | ((y - 1 / 0.7).abs() < 1e-6)).all().item<bool>());
}

// Rows and columns have binomial sums: squares of their deviations are chi-square, with a mean of n and a variance of 2n.
TEST(RandomNumbers, NoRowOrColumnIsUnlikeTheOthers) {
  constexpr int64_t kSize = 1024;
  const at::Tensor mask = mask_of({kSize, kSize}, 0.3, 11).to(at::kDouble);
  for (const int64_t dim : {0, 1}) {
    const double n = kSize, chi_square = ((mask.sum(dim) - 0.7 * n).square() / (0.21 * n)).sum().item<double>();
    EXPECT_LT(std::abs(chi_square - n) / std::sqrt(2 * n), kUnlikely) << dim;
  }
}

// All 256 patterns of eight neighbours are equally likely.
TEST(RandomNumbers, NeighboursAreIndependent) {
  const at::Tensor mask = mask_of({1024, 1024}, 0.5, 12);
  const at::Tensor weights = torch::tensor({1, 2, 4, 8, 16, 32, 64, 128});
  for (const at::Tensor& lines : {mask, mask.t().contiguous(), mask.slice(1, 0, 1024, 4).contiguous()}) {
    const at::Tensor counts = (lines.view({-1, 8}) * weights).sum(1).bincount({}, 256).to(at::kDouble);
    const double expected = static_cast<double>(lines.numel()) / 8 / 256;
    const double chi_square = ((counts - expected).square() / expected).sum().item<double>();
    EXPECT_LT(std::abs(chi_square - 255) / std::sqrt(2 * 255), kUnlikely);
  }
}

TEST(RandomNumbers, CallsSeedsAndOpsAreIndependent) {
  const auto x = torch::ones({512, 1024});
  const auto f =
      ready([](const at::Tensor& in) { return at::dropout(in, 0.5, true) + 10 * at::dropout(in, 0.5, true); }, with_kernels(), x);
  const auto draw = [&] {
    const at::Tensor sum = f(x);
    return Tensors{(sum.remainder(10) > 1), sum > 10};
  };
  Tensors all;
  for (const uint64_t seed : {0, 1, 2}) {
    torch::manual_seed(seed);
    for (int call = 0; call < 2; ++call) {
      for (const at::Tensor& mask : draw()) all.push_back(mask);
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_LT(std::abs(deviation_of_mean(all[i] == all[j], 0.5)), kUnlikely) << i << " and " << j;
  }
}

TEST(RandomNumbers, ASeedReproducesARun) {
  const auto x = torch::ones({33, 77});
  const auto f = ready([](const at::Tensor& in) { return at::dropout(in, 0.4, true); }, with_kernels(), x);
  torch::manual_seed(5);
  const at::Tensor first = f(x), second = f(x);
  torch::manual_seed(5);
  EXPECT_TRUE(f(x).equal(first));
  EXPECT_TRUE(f(x).equal(second));
  EXPECT_FALSE(first.equal(second));
  torch::manual_seed(6);
  EXPECT_FALSE(f(x).equal(first));
}

TEST(RandomNumbers, OneMaskInForwardAndBackward) {
  const auto function = [](const at::Tensor& x, const at::Tensor& b) { return at::dropout(x + b, 0.3, true); };
  for (const bool is_min_cut : {false, true}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{64, 128}, {5, 7, 65}, {3}, {1, 1}, {9, 3, 1}, {0, 4}, {}}) {
        for (const bool is_guarded : {false, true}) {
          const auto x = leaf(sizes, type), b = leaf(sizes.empty() ? sizes : std::vector<int64_t>{sizes.back()}, type);
          const auto f = ready(function, with_kernels(is_min_cut ? partition::min_cut : partition::standard), x, b);
          x.mutable_grad() = b.mutable_grad() = at::Tensor();
          const at::Tensor y = f(x, b);
          Options engine;
          engine.compiler = compilers::fused();
          engine.async = false;
          {
            std::optional<Guard> guard;
            if (is_guarded) guard.emplace(enable(engine));
            y.sum().backward();
          }
          EXPECT_TRUE((x.grad() == 0).equal(y == 0)) << sizes << ", " << type;
          EXPECT_EQ(f.stats().hits, 1U);
        }
      }
    }
  }
}

std::string last_line(const std::string& text) { return text.substr(text.rfind("return")); }

TEST(RandomNumbers, MinCutSavesTheSeedAndNoMask) {
  const auto x = leaf({64, 128});
  const auto function = [](const at::Tensor& in) { return at::dropout(in * 2, 0.3, true); };
  const auto cut = ready(function, with_kernels(), x), standard = ready(function, with_kernels(partition::standard), x);
  const auto programs = cut.core().programs().at(0);
  EXPECT_THAT(last_line(programs.forward->print()), HasSubstr("[mul_1, philox_seed]"));
  EXPECT_THAT(programs.backward->print(), HasSubstr("philox_bernoulli: "));
  EXPECT_THAT(last_line(standard.core().programs().at(0).forward->print()), HasSubstr("philox_bernoulli]"));
  EXPECT_THAT(standard.core().programs().at(0).backward->print(), Not(HasSubstr("hindcast.philox_bernoulli")));
}

// All masks read the same counters, with products between them.
TEST(RandomNumbers, MinCutSavesNoMaskOfADeepNetwork) {
  const auto x = leaf({64, 128}), weight = leaf({128, 128});
  const auto function = [](at::Tensor in, const at::Tensor& matrix) {
    for (int i = 0; i < 4; ++i) in = in + at::dropout(at::matmul(in, matrix), 0.1, true);
    return in;
  };
  const auto f = ready(function, with_kernels(), x, weight);
  EXPECT_THAT(last_line(f.core().programs().at(0).forward->print()), Not(HasSubstr("philox_bernoulli")));
}

/// Drawn by the op itself, from the generator's next number, in float64.
at::Tensor drawn_by_the_op(const at::Tensor& like, int64_t first_column, double p) {
  const auto call = [](const char* name, torch::jit::Stack stack) {
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
    return stack[0].toTensor();
  };
  std::vector<int64_t> rows = like.sizes().slice(0, static_cast<size_t>(first_column)).vec();
  rows.resize(static_cast<size_t>(like.dim()), 1);
  const std::vector<int64_t> columns = like.sizes().slice(static_cast<size_t>(first_column)).vec();
  return call("hindcast::philox_bernoulli",
              {call("hindcast::philox_seed", {at::Device(at::kCPU)}), call("hindcast::counters", {rows, at::Device(at::kCPU)}),
               call("hindcast::counters", {columns, at::Device(at::kCPU)}), p, 1 / p, static_cast<int64_t>(at::kDouble)});
}

// In pointwise and row kernels, with transposed and broadcast operands and sizes that are no multiple of a vector; on all threads.
TEST(RandomNumbers, KernelsDrawWhatTheOpDraws) {
  struct Case {
    std::string name;
    std::vector<int64_t> sizes;
    int64_t first_column;  // the dims from it on have 64 elements or more
    std::function<at::Tensor(const at::Tensor& x, const at::Tensor& noise)> after;
  };
  const auto product = [](const at::Tensor& x, const at::Tensor& noise) { return x * noise; };
  const std::vector<Case> cases = {
      {"elements", {300, 130}, 1, product},
      {"few columns", {50, 9, 7}, 0, product},
      {"several", {7, 5, 8, 31}, 2, product},
      {"many", {1000, 1000}, 1, product},
      {"one", {1}, 0, product},
      {"vectors", {300, 128}, 1, product},
      {"rows", {37, 129}, 1, [](const at::Tensor& x, const at::Tensor& noise) { return (x * noise).softmax(-1); }},
      {"rows of vectors", {37, 128}, 1, [](const at::Tensor& x, const at::Tensor& noise) { return (x * noise).softmax(-1); }},
      {"rows of some of the columns", {10, 16, 8}, 1, [](const at::Tensor& x, const at::Tensor& noise) { return (x * noise).softmax(-1); }},
      {"rows of several dims",
       {6, 16, 80},
       2,
       [](const at::Tensor& x, const at::Tensor& noise) {
         return at::layer_norm(x * noise, {16, 80});
       }},
      {"sums", {40, 70}, 1, [](const at::Tensor& x, const at::Tensor& noise) { return (x * noise).sum(0); }},
      {"sums of vectors", {40, 128}, 1, [](const at::Tensor& x, const at::Tensor& noise) { return (x * noise).sum(0); }},
      {"sums of some of the columns", {10, 16, 8}, 1, [](const at::Tensor& x, const at::Tensor& noise) { return (x * noise).sum(1); }},
      {"rows that end within a pair", {50, 9, 7}, 0, [](const at::Tensor& x, const at::Tensor& noise) { return (x * noise).softmax(-1); }},
      {"transposed", {70, 130}, 1, [](const at::Tensor& x, const at::Tensor& noise) { return x.t().contiguous().t() * noise; }},
  };
  for (const Case& of : cases) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const auto x = torch::randn(of.sizes, type);
      const auto f = ready(
          [&](const at::Tensor& in) { return of.after(in, at::empty_like(in, at::MemoryFormat::Contiguous).bernoulli_(0.7).div_(0.7)); },
          with_kernels(), x);
      torch::manual_seed(9);
      const at::Tensor expected = of.after(x.to(at::kDouble), drawn_by_the_op(x, of.first_column, 0.7));
      const double unit = type == at::kDouble ? 1e-13 : type == at::kFloat ? 2e-6 : 1e-2;
      torch::manual_seed(9);
      const double error = (f(x) - expected).abs().max().item<double>();
      EXPECT_LT(error, unit * expected.abs().max().item<double>()) << of.name << ", " << type;
    }
  }
}

TEST(RandomNumbers, SizesMayChange) {
  const auto f = aot_function([](const at::Tensor& x) { return at::dropout(x, 0.3, true); }, with_kernels());
  for (const int64_t rows : {3, 7, 11, 130, 1, 2000}) {
    const auto x = leaf({rows, 70});
    torch::manual_seed(4);
    const uint64_t hits = f.stats().hits;
    const at::Tensor y = f(x);
    y.sum().backward();
    EXPECT_TRUE((x.grad() == 0).equal(y == 0)) << rows;
    if (f.stats().hits == hits) continue;
    torch::manual_seed(4);
    EXPECT_TRUE(at::allclose(y.to(at::kDouble), x * drawn_by_the_op(x, 1, 0.7))) << rows;
  }
  EXPECT_GE(f.stats().hits, 3U);
}

TEST(RandomNumbers, OtherDropoutsAndBernoullis) {
  const auto x = leaf({8, 16, 12, 12});
  const auto channels = ready([](const at::Tensor& in) { return at::feature_dropout(in, 0.5, true); }, with_kernels(), x);
  EXPECT_THAT(channels.core().programs().at(0).forward->print(), HasSubstr("philox_bernoulli"));
  const at::Tensor kept = channels(x).detach().ne(0).flatten(2);
  EXPECT_TRUE(kept.all(-1).logical_or(kept.any(-1).logical_not()).all().item<bool>());
  EXPECT_LT(std::abs(deviation_of_mean(kept.all(-1), 0.5)), kUnlikely);

  const auto y = torch::randn({300, 300});
  const auto alpha = ready([](const at::Tensor& in) { return at::alpha_dropout(in, 0.2, true); }, with_kernels(), y);
  EXPECT_NEAR(alpha(y).var().item<double>(), 1, 0.05);

  const auto p = ready([](const at::Tensor& in) { return at::bernoulli(in, 0.25); }, with_kernels(), y);
  EXPECT_LT(std::abs(deviation_of_mean(p(y) == 1, 0.25)), kUnlikely);
  EXPECT_TRUE(((p(y) == 1) | (p(y) == 0)).any().item<bool>());
}

// A slice of a tensor, a mask of bools, a probability per element.
TEST(RandomNumbers, WhatIsNotRecognisedIsAtens) {
  const auto x = torch::rand({30, 40});
  const auto function = [&](const at::Tensor& in) {
    const at::Tensor part = in * 1;
    part.slice(1, 0, 20).bernoulli_(0.5);
    return part + in.bernoulli() + at::empty_like(in, at::kBool).bernoulli_(0.5) + at::empty_like(in).bernoulli_(in);
  };
  const auto f = ready(function, with_kernels(), x);
  EXPECT_THAT(f.core().programs().at(0).forward->print(), Not(HasSubstr("philox")));
  torch::manual_seed(1);
  const at::Tensor given = f(x);
  torch::manual_seed(1);
  EXPECT_TRUE(given.equal(function(x)));
}

// The function may seed it, which the trace does not see.
TEST(RandomNumbers, AGeneratorOfTheUsersIsNoProgram) {
  auto generator = at::detail::createCPUGenerator(3);
  const auto seeded = [&](const at::Tensor& in) {
    generator.set_current_seed(5);
    return in + at::rand({4}, generator);
  };
  const auto f = aot_function(seeded, with_kernels());
  const auto x = torch::zeros({4});
  const at::Tensor expected = seeded(x);
  for (int call = 0; call < 5; ++call) EXPECT_TRUE(f(x).equal(expected)) << call;
  EXPECT_EQ(f.stats().hits, 0U);
}

TEST(RandomNumbers, AreAtensWhereAsked) {
  const auto function = [](const at::Tensor& x) { return at::dropout(x, 0.3, true); };
  const auto x = torch::randn({30, 40});
  const auto expect_atens = [&](const AotOptions& options, const char* why) {
    const auto f = ready(function, options, x);
    torch::manual_seed(1);
    const at::Tensor given = f(x);
    torch::manual_seed(1);
    EXPECT_TRUE(at::allclose(given, function(x))) << why;
    EXPECT_EQ(f.stats().hits, 1U) << why;
  };
  AotOptions options = with_kernels();
  options.fallback_random = true;
  expect_atens(options, "fallback_random");
  options = with_kernels();
  options.check_every = 2;
  expect_atens(options, "check_every");
  options = with_kernels();
  options.bw_compiler = compilers::eager();
  expect_atens(options, "no kernels in the backward");
  at::globalContext().setDeterministicAlgorithms(true, false);
  expect_atens(with_kernels(), "deterministic algorithms");
  at::globalContext().setDeterministicAlgorithms(false, false);
}

// What devices without a kernel of ours run.
TEST(RandomNumbers, AreTheSameByAtensOps) {
  const at::Tensor rows = at::tensor({0, 1, 7, 0x7fffffff, -5}, at::kInt).view({5, 1}), columns = at::arange(33, at::kInt).view({1, 33});
  for (const int64_t seed : {int64_t{0}, int64_t{12345}, int64_t{-1}, std::numeric_limits<int64_t>::min(), int64_t{0x123456789abcdef0}}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::Tensor by_ops = codegen::philox_bernoulli_by_ops(at::tensor(seed, at::kLong), rows, columns, 0.4, 2.5, type);
      const at::Tensor ours =
          c10::Dispatcher::singleton()
              .findSchemaOrThrow("hindcast::philox_bernoulli", "")
              .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, double, at::ScalarType)>()
              .call(at::tensor(seed, at::kLong), rows, columns, 0.4, 2.5, type);
      EXPECT_TRUE(at::equal(by_ops, ours)) << seed;
    }
  }
}

// The form of dropout where ATen draws and drops in one kernel, as on CUDA.
TEST(RandomNumbers, AreThoseOfNativeDropoutToo) {
  for (const auto& partition : {partition::min_cut, partition::standard}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const auto x = leaf({64, 96}, type);
      const auto function = [](const at::Tensor& in) { return std::get<0>(at::native_dropout(in.tanh(), 0.3, true)).mul(2); };
      const auto f = ready(function, with_kernels(partition), x);
      x.mutable_grad() = at::Tensor();
      torch::manual_seed(3);
      const at::Tensor y = f(x);
      y.sum().backward();
      const at::Tensor kept = y.detach() != 0, expected = x.detach().to(at::kDouble).tanh() * 2 / 0.7;
      EXPECT_LT(std::abs(deviation_of_mean(kept, 0.7)), kUnlikely);
      const double tolerance = type == at::kFloat ? 1e-6 : 0x1p-7;
      EXPECT_TRUE(at::allclose(y.detach().to(at::kDouble), at::where(kept, expected, at::zeros_like(expected)), tolerance, tolerance));
      const at::Tensor slope = (1 - x.detach().to(at::kDouble).tanh().square()) * 2 / 0.7;
      EXPECT_TRUE(at::allclose(x.grad().to(at::kDouble), at::where(kept, slope, at::zeros_like(slope)), 2 * tolerance, 2 * tolerance));
      const auto programs = f.core().programs().at(0);
      EXPECT_THAT(programs.forward->print(), AllOf(HasSubstr("philox_dropout"), Not(HasSubstr("native_dropout"))));
      EXPECT_THAT(programs.backward->print(), AllOf(HasSubstr("philox_dropout"), Not(HasSubstr("native_dropout"))));
    }
  }
}

TEST(RandomNumbers, OfADropoutWhoseMaskIsReadAreAtens) {
  const auto x = leaf({64, 96});
  const auto f = ready(
      [](const at::Tensor& in) {
        const auto [y, mask] = at::native_dropout(in, 0.3, true);
        return y + mask.to(at::kFloat);
      },
      with_kernels(), x);
  EXPECT_THAT(f.core().programs().at(0).forward->print(), HasSubstr("native_dropout"));
}

}  // namespace
}  // namespace hindcast::tests::random_numbers_test
