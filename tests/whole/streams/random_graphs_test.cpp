// Random graphs, over two devices with three streams each, and the CPU. Numbers are small integers, so that sums are exact in whatever
// order the stock engine's threads add.

#include <ATen/ops/full.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <random>

#include "tests/support/fake_device.h"
#include "tests/whole/streams/two_engines.h"

namespace hindcast::tests {
namespace {

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 2};
  }
};

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed) {}

  void run(Seen& seen) {
    for (int i = 0; i < 4; ++i) add_leaf(i);
    const int ops = 6 + below(8);
    for (int i = 0; i < ops; ++i) add_op(seen);
    at::Tensor loss;
    const bool is_on_cpu = below(4) == 0;
    for (const Value& value : values_) {
      if (!value.tensor.device().is_cpu()) order(value.made_on, stream(0, value.tensor.device().index()));
      auto part = value.tensor.sum().to(is_on_cpu ? at::Device(at::kCPU) : fake(0));
      loss = loss.defined() ? loss + part : part;
    }
    const c10::Stream caller = stream(below(3), below(2));
    order(stream(0, 0), caller);
    {
      const c10::StreamGuard guard(caller);
      loss.backward();
    }
    order(caller, stream(0, caller.device_index()));
    for (const Value& leaf : values_) {
      if (leaf.tensor.is_leaf()) seen.show(leaf.tensor.grad());
    }
    synchronize_fake_device();  // other streams may still read what is freed
  }

 private:
  struct Value {
    at::Tensor tensor;
    c10::Stream made_on;  // of a tensor on the CPU, any
  };

  int below(int end) { return static_cast<int>(random_() % static_cast<uint64_t>(end)); }
  c10::Stream any_stream(at::Device device) { return stream(below(3), device.is_cpu() ? 0 : device.index()); }
  const Value& any_value() { return values_[static_cast<size_t>(below(static_cast<int>(values_.size())))]; }

  static void wait_for(const Value& value, const c10::Stream& stream) {
    if (!value.tensor.device().is_cpu()) order(value.made_on, stream);
  }

  void add_leaf(int number) {
    const at::Device device = number == 3 ? at::Device(at::kCPU) : fake(number % 2);
    auto numbers = at::full({4, 4}, 0, at::kDouble);
    for (int i = 0; i < 16; ++i) numbers.view(-1)[i] = below(3) - 1;
    if (number == 3) numbers = numbers[0][0].clone();
    values_.push_back({numbers.to(device).requires_grad_(), stream(0, device.is_cpu() ? 0 : device.index())});
  }

  void add_op(Seen& seen) {
    const Value a = any_value();
    const at::Device device = a.tensor.device();
    const c10::Stream on = any_stream(device);
    const Value& b = values_[static_cast<size_t>(device.is_cpu() ? 3 : device.index())];  // a leaf there
    wait_for(a, on);
    wait_for(b, on);
    at::Tensor made;
    {
      const c10::StreamGuard guard(on);
      made = compute(a.tensor, b.tensor);
    }
    const bool is_elsewhere = !made.device().is_cpu() && made.device() != on.device();
    const c10::Stream made_on = is_elsewhere ? stream(0, made.device().index()) : on;
    if (below(3) == 0) seen.hook(made, "value " + std::to_string(values_.size()));
    values_.push_back({made, made_on});
  }

  at::Tensor compute(const at::Tensor& a, const at::Tensor& b) {
    const bool is_scalar = a.dim() == 0;
    switch (below(8)) {
      case 0:
        return a * b;
      case 1:
        return a + b;
      case 2:
        return is_scalar ? a.neg() : a.mm(b);
      case 3:
        return is_scalar ? a * 3 : a.t().neg();
      case 4:
        return Doubled::apply(a);
      case 5:
        return a.device().is_cpu() ? a.to(fake(below(2))) * 1 : a.to(fake(1 - a.device().index()));
      case 6:
        return is_scalar ? a.abs() : a * values_[3].tensor;  // a scalar of the CPU
      default:
        return is_scalar ? a.clone() : a.narrow(0, 0, 2).sum(0) + b;
    }
  }

  std::mt19937_64 random_;
  std::vector<Value> values_;
};

TEST(StreamsOfRandomGraphs, AreThoseOfTheStockEngine) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_same([seed](Seen& seen) { RandomProgram(seed).run(seen); }, {.in_any_order = true, .stock_is_ordered = false});
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace hindcast::tests
