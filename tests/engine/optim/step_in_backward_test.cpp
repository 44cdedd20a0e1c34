// The optimizer's step within the backward: the same training, and gradients that are never all in memory together.

#include <gtest/gtest.h>
#include <hindcast/hindcast.h>
#include <hindcast/optim.h>
#include <torch/torch.h>

#include <array>
#include <thread>

#include "tests/codegen/cpu/memory/counting_allocator.h"
#include "tests/engine/optim/optimizers.h"

namespace hindcast::tests::step_in_backward_test {
namespace {

using codegen::cpu::CountingAllocator;

constexpr int64_t kWidth = 48;

Tensors layers(int count) {
  Tensors weights;
  for (int i = 0; i < count; ++i) weights.push_back((torch::randn({kWidth, kWidth}) / 7).requires_grad_());
  return weights;
}

at::Tensor loss_of(const Tensors& weights, const at::Tensor& input) {
  at::Tensor x = input;
  for (const at::Tensor& weight : weights) x = torch::tanh(x.mm(weight));
  return x.square().mean();
}

enum class Engine : uint8_t { Stock, Kernels, ThroughAten };

std::optional<Guard> guard_of(Engine engine) {
  if (engine == Engine::Stock) return std::nullopt;
  Options options;
  options.async = false;
  options.compiler = engine == Engine::ThroughAten ? compilers::eager() : compilers::fused();
  return enable(options);
}

class StepsInBackward : public testing::TestWithParam<OptimizerForm> {
 protected:
  void SetUp() override {
    reset();
    torch::manual_seed(1);
  }
};

TEST_P(StepsInBackward, TrainAlike) {
  const at::Tensor input = torch::randn({8, kWidth});
  const Tensors made = layers(4);
  for (const Engine engine : {Engine::Stock, Engine::ThroughAten, Engine::Kernels}) {
    const Tensors ours = copies_of(made), stock = copies_of(made);
    const auto of_ours = GetParam().make(ours), of_stock = GetParam().make(stock);
    const auto stepping = step_in_backward(*of_ours);
    for (int i = 0; i < 4; ++i) {
      {
        const auto guard = guard_of(engine);
        loss_of(ours, input).backward();
      }
      of_stock->zero_grad();
      loss_of(stock, input).backward();
      of_stock->step();
      for (size_t j = 0; j < ours.size(); ++j) {
        EXPECT_TRUE(at::allclose(ours[j], stock[j], 1e-4, 1e-5)) << static_cast<int>(engine) << ", step " << i << ", " << j;
        EXPECT_FALSE(ours[j].grad().defined());
        EXPECT_EQ(steps_of(*of_ours, ours[j]), steps_of(*of_stock, stock[j]));
      }
    }
    EXPECT_EQ(stepping.compiled(), 16u);
    EXPECT_EQ(stepping.original(), 0u);
  }
}

std::string name_of(const testing::TestParamInfo<OptimizerForm>& form) { return form.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, StepsInBackward, testing::ValuesIn(optimizer_forms()), name_of);

TEST(StepInBackward, EndsWithItsObject) {
  reset();
  const Tensors weights = layers(2);
  torch::optim::SGD optimizer(weights, 0.1);
  const at::Tensor input = torch::randn({8, kWidth});
  auto stepping = step_in_backward(optimizer);
  auto moved = std::move(stepping);
  loss_of(weights, input).backward();
  EXPECT_FALSE(weights[0].grad().defined());
  { const auto ends = std::move(moved); }
  loss_of(weights, input).backward();
  EXPECT_TRUE(weights[0].grad().defined());
}

TEST(StepInBackward, RefusesWhatItCannotDo) {
  const Tensors weights = layers(1);
  torch::optim::LBFGS other(weights);
  EXPECT_THROW((void)step_in_backward(other), std::invalid_argument);
  torch::optim::SGD frozen(Tensors{weights[0], torch::ones({2})}, 0.1);
  EXPECT_THROW((void)step_in_backward(frozen), std::invalid_argument);
  loss_of(weights, torch::randn({8, kWidth})).backward();
  EXPECT_TRUE(weights[0].grad().defined()) << "nothing stays registered";
}

TEST(StepInBackward, GroupsAreRemovedAndMoved) {
  const Tensors leaves = {torch::ones({2}).requires_grad_(), torch::ones({2}).requires_grad_(), torch::ones({2}).requires_grad_()};
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (size_t i = 0; i < leaves.size(); ++i) {
    auto options = std::make_unique<torch::optim::SGDOptions>(0.1 * static_cast<double>(i + 1));
    groups.emplace_back(Tensors{leaves[i]}, std::move(options));
  }
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(1.));
  const auto stepping = step_in_backward(optimizer);
  auto& now = optimizer.param_groups();
  now.erase(now.begin());
  std::swap(now[0], now[1]);
  (leaves[0] + leaves[1] + leaves[2]).sum().backward();
  const std::array expected = {1., 0.8, 0.7};
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_TRUE(torch::allclose(leaves[i], torch::full({2}, expected[i]))) << i << leaves[i];
}

TEST(StepInBackward, OfSeveralThreads) {
  reset();
  Tensors all = layers(8);
  torch::optim::Adam optimizer(all, torch::optim::AdamOptions(1e-3));
  const auto stepping = step_in_backward(optimizer);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const auto guard = guard_of(Engine::Kernels);
      const Tensors own = {all[2 * thread], all[2 * thread + 1]};
      for (int i = 0; i < 20; ++i) loss_of(own, torch::ones({8, kWidth})).backward();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stepping.compiled(), 4u * 20 * 2);
  for (const at::Tensor& weight : all) EXPECT_EQ(steps_of(optimizer, weight), 20);
}

// The first step creates the state. From then on a backward needs one gradient at a time.
TEST(StepInBackward, GradientsAreNotInMemoryTogether) {
  for (const Engine engine : {Engine::Stock, Engine::Kernels}) {
    reset();
    const Tensors weights = layers(24);
    const at::Tensor input = torch::randn({4, kWidth});
    torch::optim::SGD optimizer(weights, torch::optim::SGDOptions(1e-3).momentum(0.9));
    const auto peak_of = [&](const std::function<void()>& step) {
      for (int i = 0; i < 3; ++i) step();
      trim();
      CountingAllocator counted;
      step();
      return CountingAllocator::most().load();
    };
    const auto guarded_backward = [&] {
      const auto guard = guard_of(engine);
      loss_of(weights, input).backward();
    };
    auto step = compiled_step(optimizer);
    const int64_t apart = peak_of([&] {
      guarded_backward();
      step();
      optimizer.zero_grad();
    });
    const auto stepping = step_in_backward(optimizer);
    const int64_t inside = peak_of(guarded_backward);
    const int64_t gradients = 24 * kWidth * kWidth * static_cast<int64_t>(sizeof(float));
    EXPECT_GE(apart - inside, gradients * 8 / 10) << static_cast<int>(engine) << ": " << apart << ", " << inside;
  }
}

}  // namespace
}  // namespace hindcast::tests::step_in_backward_test
