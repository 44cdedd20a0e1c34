// Functions compiled ahead of time, and steps of optimizers, on a card: compared with ATen's, and with float64.

#include <hindcast/aot.h>
#include <hindcast/hindcast.h>
#include <hindcast/optim.h>

#include <torch/optim.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/deterministic.h"
#include "tests/gpu/on_gpu.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests {
namespace {

class GpuAot : public OnTestedDevice {
 protected:
  static at::TensorOptions of(at::ScalarType type) { return at::device(device_of_tests()).dtype(type); }
  /// The same numbers on all devices.
  static at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType type) { return at::randn(sizes, at::kDouble).to(of(type)); }

 private:
  const SteadyLibraries steady_;
};

AotOptions with_kernels() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.async = false;
  return options;
}

using Call = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b)>;

struct Pattern {
  std::string name;
  Call call;
};

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all = {
      {"bias_gelu", [](const at::Tensor& x, const at::Tensor& /*w*/, const at::Tensor& b) { return at::gelu(x + b, "tanh"); }},
      {"layer_norm",
       [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) { return at::layer_norm(x.tanh(), {x.size(1)}, w, b); }},
      {"softmax", [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) { return (x * w + b).softmax(1); }},
      {"linear", [](const at::Tensor& x, const at::Tensor& w,
                    const at::Tensor& b) { return at::linear(x.sigmoid(), w.outer(b) / static_cast<double>(w.numel())).relu() + x; }},
  };
  return all;
}

/// The result, and the gradients of all three.
Tensors run(const Call& call, const Tensors& inputs, at::ScalarType type) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.to(type).detach().clone().requires_grad_());
  const at::Tensor result = call(leaves[0], leaves[1], leaves[2]);
  (result * result.detach().cos()).sum().backward();
  Tensors seen = {result.detach()};
  for (const at::Tensor& leaf : leaves) seen.push_back(leaf.grad().defined() ? leaf.grad() : at::empty({0}, leaf.options()));
  return seen;
}

TEST_F(GpuAot, FunctionsGiveWhatTheyGiveAsTheyAre) {
  torch::manual_seed(1);
  for (const Pattern& pattern : patterns()) {
    SCOPED_TRACE(pattern.name);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      SCOPED_TRACE(c10::toString(type));
      const auto compiled = aot_function(pattern.call, with_kernels());
      for (const int64_t rows : {48, 48, 7, 129}) {  // the others are hits of programs for all sizes
        const Tensors inputs = {numbers({rows, 64}, type), numbers({64}, type), numbers({64}, type)};
        const Tensors stock = run(pattern.call, inputs, type), truth = run(pattern.call, inputs, at::kDouble);
        expect_near(run([&](const auto&... all) { return compiled(all...); }, inputs, type), stock, type == at::kDouble ? stock : truth,
                    64);
      }
      EXPECT_GE(compiled.stats().hits, 2U);
      EXPECT_EQ(compiled.stats().eager, 0U);
    }
  }
}

// Kernels draw the numbers themselves: in the forward and, again, in the backward.
TEST_F(GpuAot, DropoutDropsInTheBackwardWhatItDroppedInTheForward) {
  constexpr double kDropped = 0.3;
  const auto compiled =
      aot_function([=](const at::Tensor& x, const at::Tensor& b) { return at::dropout(x + b, kDropped, true).exp(); }, with_kernels());
  const auto x = at::rand({1024, 1000}, of(at::kFloat)).requires_grad_(), b = at::rand({1000}, of(at::kFloat)).requires_grad_();
  const auto draw = [&] {
    x.mutable_grad() = at::Tensor();
    const at::Tensor y = compiled(x, b);
    y.sum().backward();
    const at::Tensor kept = y.detach() != 1;
    EXPECT_TRUE(at::equal(kept, x.grad() != 0));
    EXPECT_TRUE(at::allclose(x.grad(), kept * y.detach() / (1 - kDropped)));
    return kept;
  };
  torch::manual_seed(4);
  draw();  // traced
  torch::manual_seed(5);
  const at::Tensor first = draw(), second = draw();
  const double n = static_cast<double>(first.numel()), share = first.to(at::kDouble).mean().item<double>();
  EXPECT_LT(std::abs(share - (1 - kDropped)) / std::sqrt(kDropped * (1 - kDropped) / n), 4);  // standard deviations
  EXPECT_FALSE(at::equal(first, second));
  torch::manual_seed(5);
  EXPECT_TRUE(at::equal(draw(), first));
  EXPECT_EQ(compiled.stats().hits, 3U);
  // As in a checkpoint, and in programs that draw with ATen in between.
  const at::Generator generator = at::globalContext().defaultGenerator(device_of_tests());
  const at::Tensor state = generator.get_state();
  const at::Tensor third = draw(), by_aten = at::rand({64}, of(at::kFloat)), fourth = draw();
  at::Generator(generator).set_state(state);
  EXPECT_TRUE(at::equal(draw(), third));
  EXPECT_TRUE(at::equal(at::rand({64}, of(at::kFloat)), by_aten));
  EXPECT_TRUE(at::equal(draw(), fourth));
  const double alike = (third == fourth).to(at::kDouble).mean().item<double>();
  const double expected = kDropped * kDropped + (1 - kDropped) * (1 - kDropped);
  EXPECT_LT(std::abs(alike - expected) / std::sqrt(expected * (1 - expected) / n), 4);  // two masks are independent
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Tensors& parameters)>;

template <class Optimizer, class OptimizerOptions>
MakeOptimizer with(OptimizerOptions options) {
  return [options](const Tensors& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}

TEST_F(GpuAot, StepsAreTheOptimizers) {
  using namespace torch::optim;
  torch::manual_seed(2);
  for (const auto& make : {with<AdamW>(AdamWOptions(0.01).weight_decay(0.1)), with<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(c10::toString(type));
      Tensors ours, stock, truth;
      for (const at::IntArrayRef sizes : std::vector<std::vector<int64_t>>{{1}, {64, 33}, {0}, {5000}}) {
        const at::Tensor parameter = numbers(sizes, type);
        ours.push_back(parameter.clone().requires_grad_());
        stock.push_back(parameter.clone().requires_grad_());
        truth.push_back(parameter.to(at::kDouble).requires_grad_());
      }
      const auto of_ours = make(ours), of_stock = make(stock), of_truth = make(truth);
      auto step = compiled_step(*of_ours);
      for (int i = 0; i < 4; ++i) {
        for (size_t j = 0; j < ours.size(); ++j) {
          const at::Tensor gradient = numbers(ours[j].sizes(), type);
          ours[j].mutable_grad() = gradient.clone();
          stock[j].mutable_grad() = gradient.clone();
          truth[j].mutable_grad() = gradient.to(at::kDouble);
        }
        step();
        of_stock->step();
        of_truth->step();
        for (size_t j = 0; j < ours.size(); ++j) expect_near(ours[j].detach(), stock[j].detach(), truth[j].detach(), 16, 0.1);
      }
      EXPECT_EQ(step.counts().original, 0U) << step.counts().why_original;
      EXPECT_EQ(step.counts().compiled, 4 * ours.size());
    }
  }
}

}  // namespace
}  // namespace hindcast::tests
