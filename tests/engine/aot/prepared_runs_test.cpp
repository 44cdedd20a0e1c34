// Later runs of a program reuse layouts and memory places of an earlier one. Results must equal those of ordinary runs.

#include <gtest/gtest.h>
#include <hindcast/aot.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

// More runs than it takes until one is recorded.
constexpr int kRuns = 40;

AotOptions with_kernels_at_once() {
  AotOptions options;
  options.async = false;
  options.back_off = false;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  return options;
}

/// Kernels of all kinds, views, and ATen's ops between them.
Tensors mixed(const Tensors& in) {
  const at::Tensor &x = in[0], &w = in[1], &b = in[2], &index = in[3];
  const at::Tensor hidden = (at::addmm(b, x, w.t()) * 0.5).tanh();
  const at::Tensor logits = at::log_softmax(hidden.mm(w), 1);
  const at::Tensor picked = logits.gather(1, index).squeeze(1);
  const at::Tensor sums = (hidden.exp() * hidden).sum(1) + picked;
  const at::Tensor sorted = std::get<0>((sums * 2 + 1).sort());
  return {sums.exp().mean(), (sorted.sin() + picked).unsqueeze(0), hidden.t().select(0, 1), (logits + 1).relu()};
}

Tensors inputs_of(int64_t rows, uint64_t seed) {
  at::manual_seed(seed);
  return {at::randn({rows, 5}), at::randn({7, 5}) * 0.3, at::randn({7}), at::randint(5, {rows, 1}, at::kLong)};
}

void expect_same(const Tensors& ours, const Tensors& stock) {
  ASSERT_EQ(ours.size(), stock.size());
  for (size_t i = 0; i < stock.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), stock[i].defined()) << i;
    if (!stock[i].defined()) continue;
    EXPECT_EQ(ours[i].strides(), stock[i].strides()) << i;
    EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-4, 1e-5, /*equal_nan=*/true)) << i << (ours[i] - stock[i]).abs().max();
  }
}

/// Values and gradients of one call.
Tensors step(const Function& function, Tensors inputs) {
  for (at::Tensor& input : inputs) {
    if (input.is_floating_point()) input = input.detach().requires_grad_();
  }
  const Tensors results = function(inputs);
  at::Tensor loss = at::zeros({});
  for (const at::Tensor& result : results) loss = loss + (result * result.detach().cos()).sum();
  Tensors leaves = {inputs[0], inputs[1], inputs[2]}, all = torch::autograd::grad({loss}, leaves, {}, std::nullopt, false, true);
  for (const at::Tensor& result : results) all.push_back(result.detach());
  return all;
}

TEST(PreparedRuns, AreAsTheFirstOnes) {
  const auto compiled = aot_function(mixed, with_kernels_at_once());
  Tensors kept, kept_as;
  for (int run = 0; run < kRuns; ++run) {
    SCOPED_TRACE(run);
    const Tensors inputs = inputs_of(6, static_cast<uint64_t>(run));
    const Tensors ours = step([&](const Tensors& in) { return compiled(in); }, inputs);
    expect_same(ours, step(mixed, inputs));
    // Results belong to the caller: nothing writes to them later.
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(kept[i], kept_as[i])) << i;
    kept = ours;
    kept_as.clear();
    for (const at::Tensor& tensor : ours) kept_as.push_back(tensor.clone());
  }
  EXPECT_EQ(compiled.stats().hits, kRuns - 1u);
}

TEST(PreparedRuns, GiveEqualBitsInEachRun) {
  const auto compiled = aot_function(mixed, with_kernels_at_once());
  const Tensors inputs = inputs_of(6, 1);
  Tensors first;
  for (int run = 0; run < kRuns; ++run) {
    const at::NoGradGuard no_grad;
    const Tensors now = compiled(inputs);
    if (run == 2) first = now;
    for (size_t i = 0; run > 2 && i < now.size(); ++i) EXPECT_TRUE(at::equal(now[i], first[i])) << run << ' ' << i;
  }
}

TEST(PreparedRuns, OfSizesThatChange) {
  const auto compiled = aot_function(mixed, with_kernels_at_once());
  const std::vector<int64_t> sizes = {6, 9, 6, 4, 300, 1, 6, 0, 9, 2};
  for (int run = 0; run < 2 * kRuns; ++run) {
    SCOPED_TRACE(run);
    const Tensors inputs = inputs_of(run < kRuns ? sizes[static_cast<size_t>(run) % sizes.size()] : run % 2 == 0 ? 6 : 9, 3);
    if (inputs[0].size(0) == 0) continue;  // a mean of nothing
    expect_same(step([&](const Tensors& in) { return compiled(in); }, inputs), step(mixed, inputs));
  }
}

// A recorded run does not depend on strides and conjugate or negative bits of the inputs if the program accepts them.
TEST(PreparedRuns, OfInputsOfOtherLayouts) {
  const auto compiled = aot_function(mixed, with_kernels_at_once());
  for (int run = 0; run < 3 * kRuns; ++run) {
    SCOPED_TRACE(run);
    Tensors inputs = inputs_of(6, static_cast<uint64_t>(run));
    if (run >= kRuns && run % 3 == 0) inputs[0] = inputs[0].t().contiguous().t();
    if (run >= kRuns && run % 3 == 1) inputs[1] = at::cat({inputs[1], inputs[1]}, 1).narrow(1, 3, 5);
    if (run >= kRuns && run % 3 == 2) inputs[2] = at::imag(at::complex(inputs[2], -inputs[2]).conj());
    const at::NoGradGuard no_grad;
    expect_same(compiled(inputs), mixed(inputs));
  }
}

TEST(PreparedRuns, OfSeveralThreads) {
  const auto compiled = aot_function(mixed, with_kernels_at_once());
  const Tensors inputs = inputs_of(6, 5), expected = step(mixed, inputs);
  step([&](const Tensors& in) { return compiled(in); }, inputs);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int run = 0; run < 2 * kRuns; ++run) {
        const Tensors seen = step([&](const Tensors& in) { return compiled(in); }, inputs);
        for (size_t k = 0; k < expected.size(); ++k) wrong += at::allclose(seen[k], expected[k], 1e-4, 1e-5) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// An op in the middle throws: the next call is unaffected.
TEST(PreparedRuns, EndByAnError) {
  const auto compiled = aot_function(mixed, with_kernels_at_once());
  for (int run = 0; run < kRuns; ++run) {
    SCOPED_TRACE(run);
    Tensors inputs = inputs_of(6, static_cast<uint64_t>(run));
    const at::NoGradGuard no_grad;
    if (run % 5 == 4) {
      inputs[3].fill_(99);
      EXPECT_THROW(compiled(inputs), c10::Error);
    } else {
      expect_same(compiled(inputs), mixed(inputs));
    }
  }
}

// Compares the function's results in all runs; `more` compares what else there is to them.
void expect_close_without_grad(Tensors (*function)(const Tensors&), void (*more)(const Tensors& ours, const Tensors& stock)) {
  const auto compiled = aot_function(function, with_kernels_at_once());
  for (int run = 0; run < kRuns; ++run) {
    SCOPED_TRACE(run);
    const Tensors inputs = inputs_of(6, static_cast<uint64_t>(run));
    const at::NoGradGuard no_grad;
    const Tensors ours = compiled(inputs), stock = function(inputs);
    ASSERT_EQ(ours.size(), stock.size());
    for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-4, 1e-5)) << i;
    more(ours, stock);
  }
}

// A kernel reads a view of memory that a step in between writes to or frees.
TEST(PreparedRuns, KeepWhatIsViewed) {
  const auto function = [](const Tensors& in) {
    const at::Tensor sorted = std::get<0>((in[0] + 1).sort());  // of ATen's
    const at::Tensor turned = sorted.t();
    const at::Tensor summed = at::zeros({5}).index_add(0, at::arange(5), sorted.sum(0));
    const at::Tensor taken = sorted.cumsum(0);
    at::Tensor written = sorted;
    written.index_add_(0, at::arange(6), in[0]);
    return Tensors{(turned * 2).exp().mm(in[0]), (summed + taken.sum(0)).sin() * 3, written * 2, (turned + 1).cos()};
  };
  expect_close_without_grad(function, [](const Tensors&, const Tensors&) {});
}

// Pieces of a tensor have no tensors of their own in a prepared run. Gradients of pieces are written to their places in the whole.
TEST(PreparedRuns, OfPieces) {
  const auto function = [](const Tensors& in) {
    at::Tensor state = in[0].narrow(1, 0, 2) * 0.5;
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      const at::Tensor gates = at::linear(in[0], in[1].narrow(0, 0, 6)) + at::linear(state, in[1].narrow(0, 1, 6).narrow(1, 2, 2));
      const auto pieces = gates.chunk(3, 1);
      state = pieces[0].sigmoid() * state + pieces[1].tanh() * pieces[2].sigmoid();
      all.push_back(state);
    }
    const auto rows = at::stack(all, 1).unbind(0);
    const auto some = in[2].split_with_sizes({2, 0, 5});  // one is empty
    return Tensors{rows[0] * rows[5], (rows[1] + some[0]).sin(), some[2].sin() * 2, some[1] + 1, rows[2]};
  };
  const auto compiled = aot_function(function, with_kernels_at_once());
  for (int run = 0; run < kRuns; ++run) {
    SCOPED_TRACE(run);
    const Tensors inputs = inputs_of(6, static_cast<uint64_t>(run));
    const Tensors ours = step([&](const Tensors&in) { return compiled(in); }, inputs), stock = step(function, inputs);
    ASSERT_EQ(ours.size(), stock.size());
    for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-4, 1e-5)) << i;
  }
}

// A returned view of all of a value is made as the value, unless something else is a view of it, too.
TEST(PreparedRuns, ReturnViews) {
  const auto function = [](const Tensors& in) {
    const at::Tensor product = in[0].mm(in[1].t()).tanh(), sum = (in[0] + 1).sin(), shared = (in[0] * 3).cos();
    const at::Tensor read = (in[0] - 2).exp().t(), piece = (in[0] * in[0]).sin().narrow(0, 1, 4);
    return Tensors{product.t().t().t(),
                   sum.view({-1}),
                   sum.sum(0, /*keepdim=*/true).view({-1}).detach(),
                   shared.t(),
                   shared.view({-1}),
                   read,
                   (read * 2).sum(1),
                   piece,
                   in[0].t(),
                   (in[0] * 0.5).expand({2, 6, 5})};
  };
  expect_close_without_grad(function, [](const Tensors& ours, const Tensors& stock) {
    for (size_t i = 0; i < stock.size(); ++i) {
      EXPECT_EQ(ours[i].strides(), stock[i].strides()) << i;
      for (size_t k = 0; k < i; ++k) EXPECT_EQ(ours[i].is_alias_of(ours[k]), stock[i].is_alias_of(stock[k])) << i << ' ' << k;
    }
  });
}

// Numbers may change in each call; so may sizes and dtypes of the same program.
TEST(PreparedRuns, OfNumbersThatChange) {
  const auto function = [](const at::Tensor& x, double scale) {
    return Tensors{((x * scale).sin() + x.sum(0)).mm(x.t()) * scale, (x - scale).relu().sum(1) / scale};
  };
  const auto compiled = aot_function(function, with_kernels_at_once());
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (int run = 0; run < kRuns; ++run) {
      const at::Tensor x = inputs_of(6, static_cast<uint64_t>(run))[0].to(type);
      const double scale = 1 + 0.25 * (run % 7);
      const Tensors ours = compiled(x, scale), stock = function(x, scale);
      const double tolerance = type == at::kBFloat16 ? 5e-2 : 1e-4;
      for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], tolerance, tolerance)) << run << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace hindcast::tests
