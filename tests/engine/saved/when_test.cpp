// When a checkpoint recomputes, and what is in memory meanwhile.

#include <hindcast/aot.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/torch.h>

#include "tests/codegen/cpu/memory/counting_allocator.h"
#include "tests/engine/saved/with_and_without.h"

namespace hindcast::tests {
namespace {

using codegen::cpu::CountingAllocator;

TEST(CheckpointTime, RecomputesWhenTheFirstConsumerRunsAndNotBefore) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({3});
    const auto block = [&](const std::string& name, const at::Tensor& a) {
      auto y = checkpoint([&log, name](const at::Tensor& b) { return log.note("runs " + name), b.sin().exp() * 2; }, a);
      y.register_hook([&log, name](const at::Tensor&) { log.note("gradient of " + name); });
      return y;
    };
    const auto y = block("second", block("first", x));
    log.note("backward");
    y.sum().backward();
  });
  at::manual_seed(7);
  Log log;
  const auto x = leaf({3});
  auto y = checkpoint([&](const at::Tensor& b) { return log.note("runs"), b.sin().exp() * 2; }, x);
  y.register_hook([&](const at::Tensor&) { log.note("gradient"); });
  y.sum().backward();
  EXPECT_EQ(log.events(), (std::vector<std::string>{"runs", "gradient", "runs"}));
}

TEST(CheckpointTime, RunsOnceForEachBackward) {
  int runs = 0;
  const auto x = leaf({3});
  const auto y = checkpoint([&](const at::Tensor& a) { return ++runs, a.sin().exp().cos(); }, x);
  for (int backwards = 1; backwards < 4; ++backwards) {
    y.sum().backward({}, /*retain_graph=*/true);
    EXPECT_EQ(runs, 1 + backwards);
  }
}

TEST(CheckpointTime, DoesNotRunForABackwardThatPassesBeside) {
  int runs = 0;
  const auto x = leaf({3}), w = leaf({3});
  const auto loss = (checkpoint([&](const at::Tensor& a) { return ++runs, a.sin().exp(); }, x) + w.sin()).sum();
  const auto gradient = torch::autograd::grad({loss}, {w})[0];
  EXPECT_TRUE(gradient.equal(w.detach().cos()));
  EXPECT_EQ(runs, 1);
}

TEST(CheckpointTime, EndsOnceItHasAllThatIsNeeded) {
  for (const bool early : {true, false}) {
    CheckpointOptions options;
    options.early_stop = early;
    int begun = 0, ended = 0;
    const auto x = leaf({3});
    checkpoint(
        options,
        [&](const at::Tensor& a) {
          ++begun;
          const auto y = a.sin().exp();
          const auto z = y + 1;  // saves nothing
          ++ended;
          return z;
        },
        x)
        .sum()
        .backward();
    EXPECT_EQ(begun, 2);
    EXPECT_EQ(ended, early ? 1 : 2);
  }
}

// Neither the backward nor the destruction of a long graph recurses over its length.
TEST(CheckpointMemory, OfALongChain) {
  for (const bool has_backward : {false, true}) {
    const auto x = leaf({1});
    at::Tensor y = x;
    for (int i = 0; i < 20'000; ++i) y = checkpoint([](const at::Tensor& a) { return (a + 1).sin(); }, y);
    if (has_backward) y.backward();
    y.reset();
    EXPECT_EQ(x.grad().defined(), has_backward);
  }
}

TEST(CheckpointMemory, OfABackwardThatNeverComesIsFreed) {
  auto token = std::make_shared<int>(0);
  {
    const auto x = leaf({3});
    const auto y = checkpoint([token](const at::Tensor& a) { return a.sin().exp(); }, x);
    EXPECT_GT(token.use_count(), 1);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(CheckpointMemory, FunctionAndTensorsGoWithTheBackward) {
  for (const bool guarded : {false, true}) {
    std::optional<Guard> guard;
    if (guarded) guard.emplace(hindcast::enable());
    for (int i = 0; i < 3; ++i) {
      CountingAllocator allocator;
      const auto token = std::make_shared<int>(0);
      const auto x = leaf({1000});
      const auto loss = checkpoint([token](const at::Tensor& a) { return a.sin().exp().cos(); }, x * 2).sum();
      loss.backward();
      EXPECT_EQ(token.use_count(), 1);
      EXPECT_EQ(CountingAllocator::live(), static_cast<int64_t>(2 * 1000 * sizeof(float) + sizeof(float)));  // x, x.grad and the loss
    }
  }
}

/// Holds its result until that is saved.
struct Exponential : torch::autograd::Function<Exponential> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const auto y = x.exp();
    context->save_for_backward({x, y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    return {grads[0] * context->get_saved_variables()[1]};
  }
};

TEST(CheckpointMemory, OfACustomFunctionThatIsTheLast) {
  CountingAllocator allocator;
  const auto x = leaf({1000});
  x.mutable_grad() = torch::zeros({1000});
  const int64_t before = CountingAllocator::live();
  for (int i = 0; i < 3; ++i) {
    checkpoint([](const at::Tensor& a) { return Exponential::apply(a.sin()); }, x).sum().backward();
    EXPECT_EQ(CountingAllocator::live(), before);
  }
}

// Reads one saved tensor, and needs no other.
TEST(CheckpointMemory, LookingAtASavedTensorKeepsNoOther) {
  CountingAllocator allocator;
  const auto x = leaf({1000});
  const auto y = checkpoint([](const at::Tensor& a) { return a.sin().exp().cos(); }, x);
  const int64_t before = CountingAllocator::live();
  auto& node = dynamic_cast<torch::autograd::generated::CosBackward0&>(*y.grad_fn());
  EXPECT_TRUE(node.self_.unpack().equal(x.detach().sin().exp()));
  EXPECT_EQ(CountingAllocator::live(), before);
  y.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

// ---- a chain of blocks

constexpr int kBlocks = 16;
constexpr int64_t kRows = 4096, kWidth = 32, kInner = 128;
constexpr int64_t kInput = kRows * kWidth * sizeof(float), kHidden = kRows * kInner * sizeof(float);

struct Chain {
  std::vector<at::Tensor> parameters;
  Chain() {
    at::manual_seed(2);
    for (int i = 0; i < kBlocks; ++i) {
      parameters.push_back((torch::randn({kWidth, kInner}) / 16).requires_grad_());
      parameters.push_back((torch::randn({kInner, kWidth}) / 32).requires_grad_());
    }
    for (const auto& p : parameters) p.mutable_grad() = torch::zeros_like(p);
  }
  static at::Tensor block(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down) {
    return at::gelu(at::gelu(x.mm(up)).sin()).mm(down) + x;
  }
  static at::Tensor plain(const at::Tensor& x, const std::vector<at::Tensor>& parameters) {
    at::Tensor y = x;
    for (size_t i = 0; i < parameters.size(); i += 2) y = block(y, parameters[i], parameters[i + 1]);
    return y;
  }
  static at::Tensor by_blocks(const at::Tensor& x, const std::vector<at::Tensor>& parameters) {
    at::Tensor y = x;
    for (size_t i = 0; i < parameters.size(); i += 2) y = checkpoint(block, y, parameters[i], parameters[i + 1]);
    return y;
  }
  static at::Tensor as_one(const at::Tensor& x, const std::vector<at::Tensor>& parameters) { return checkpoint(plain, x, parameters); }

  /// Peak bytes of a forward and a backward, without parameters, gradients and the input.
  template <class Forward>
  int64_t peak(const Forward& forward) const {
    const auto x = torch::randn({kRows, kWidth});
    CountingAllocator::most() = CountingAllocator::live().load();
    const int64_t before = CountingAllocator::live();
    forward(x, parameters).square().mean().backward();
    return CountingAllocator::most() - before;
  }
  int64_t peak_of_program(double budget) const {
    AotOptions options;
    options.partition = partition::min_cut;
    options.memory_budget = budget;
    options.async = false;
    const auto compiled = aot_function(plain, options);
    peak(compiled);  // traces
    peak(compiled);
    EXPECT_EQ(compiled.stats().traces, 1U);
    EXPECT_EQ(compiled.stats().hits, 1U);
    return peak(compiled);
  }
};

TEST(CheckpointMemory, OfAChainIsThatOfItsInputsAndOneBlock) {
  CountingAllocator allocator;
  const Chain chain;
  EXPECT_GT(chain.peak(Chain::plain), kBlocks * 4 * kHidden);
  const int64_t stock = chain.peak(Chain::by_blocks);
  EXPECT_LT(stock, kBlocks * kInput + 6 * kHidden);
  for (const auto& compiler : {compilers::eager(), compilers::fused()}) {
    const auto guard = hindcast::enable(compiler);
    hindcast::reset();
    const int64_t miss = chain.peak(Chain::by_blocks), hit = chain.peak(Chain::by_blocks);
    hindcast::wait();
    const int64_t later = chain.peak(Chain::by_blocks);
    EXPECT_EQ(hindcast::stats().misses, 1U);
    EXPECT_EQ(hindcast::stats().hits, 2U);
    for (const int64_t peak : {miss, hit, later}) EXPECT_LE(peak, stock + stock / 100);
  }
}

// One checkpoint per block saves the blocks' inputs, and so does a program whose budget is their share of what it would save otherwise. One
// checkpoint of all saves nothing, and so does a program without a budget: both have everything in memory at once when the backward begins.
TEST(CheckpointMemory, IsThatOfAProgramWithTheSameBudget) {
  CountingAllocator allocator;
  const Chain chain;
  const auto expect_near = [](int64_t program, int64_t checkpoints) {
    EXPECT_LE(std::abs(program - checkpoints), checkpoints / 10) << program << " and " << checkpoints << " bytes";
  };
  expect_near(chain.peak_of_program(0.12), chain.peak(Chain::by_blocks));
  expect_near(chain.peak_of_program(0), chain.peak(Chain::as_one));
}

}  // namespace
}  // namespace hindcast::tests
