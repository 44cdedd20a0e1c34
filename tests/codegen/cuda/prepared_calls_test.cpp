// What calls keep for later calls whose tensors have the same layout: what is kept, for how long, and that each call uses its own tensors.

#include "codegen/cuda/prepared_calls.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <atomic>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hindcast/hindcast.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests::cuda {
namespace {

using at::Tensor;
using codegen::cuda::LayoutKey;
using codegen::cuda::prepared_calls_found;
using codegen::cuda::PreparedCall;
using codegen::cuda::PreparedCalls;

LayoutKey key(int64_t number) {
  LayoutKey key;
  key.add(number);
  return key;
}

/// Like a call. -1: nothing was prepared.
int64_t ask(PreparedCalls& calls, int64_t number) {
  bool comes_again = false;
  if (const auto found = calls.find(key(number), comes_again)) return found->partial_bytes;
  PreparedCall made;
  made.partial_bytes = number;
  if (comes_again) calls.keep(key(number), std::move(made));
  return -1;
}

TEST(PreparedCalls, ALayoutIsKeptThatCameTwice) {
  PreparedCalls calls;
  EXPECT_EQ(ask(calls, 7), -1);
  EXPECT_EQ(ask(calls, 7), -1);
  EXPECT_EQ(ask(calls, 7), 7);
  EXPECT_EQ(ask(calls, 8), -1);
}

TEST(PreparedCalls, FourAreKept) {
  PreparedCalls calls;
  for (int round = 0; round < 2; ++round) {
    for (int64_t number = 1; number <= 4; ++number) ask(calls, number);
  }
  for (int64_t number = 1; number <= 4; ++number) EXPECT_EQ(ask(calls, number), number);
  ask(calls, 5), ask(calls, 5);
  EXPECT_EQ(ask(calls, 5), 5);
  EXPECT_EQ(ask(calls, 2), 2);
  EXPECT_EQ(ask(calls, 1), -1) << "the one that was there first goes";
}

TEST(PreparedCalls, OfFiveInTurnNoneIsKept) {
  PreparedCalls calls;
  for (int round = 0; round < 4; ++round) {
    for (int64_t number = 1; number <= 5; ++number) EXPECT_EQ(ask(calls, number), -1);
  }
}

TEST(PreparedCalls, OneThatNeverComesAgainTakesNobodysPlace) {
  PreparedCalls calls;
  for (int i = 0; i < 3; ++i) ask(calls, 1);
  for (int64_t number = 2; number < 1000; ++number) EXPECT_EQ(ask(calls, number), -1);
  EXPECT_EQ(ask(calls, 1), 1);
}

TEST(PreparedCalls, ThreadsGetTheirOwn) {
  PreparedCalls calls;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 20000; ++i) {
        const auto number = static_cast<int64_t>(random() % 6);
        const int64_t found = ask(calls, number);
        if (found != -1 && found != number) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

struct Layouts {
  std::string name;
  Function function;
  std::vector<Tensors> inputs;  // each with its own layout
};
std::ostream& operator<<(std::ostream& out, const Layouts& one) { return out << one.name; }

/// The same elements, shifted by one element in memory.
Tensor not_aligned(const Tensor& tensor) {
  const Tensor moved = at::empty({tensor.numel() + 1}).slice(0, 1).view(tensor.sizes());
  moved.copy_(tensor);
  return moved;
}
Tensor turned(const Tensor& tensor) { return tensor.t().contiguous().t(); }
/// Rows with other memory around them.
Tensor apart(const Tensor& tensor, int64_t before = 0) {
  const Tensor rows = at::zeros({tensor.size(0), tensor.size(1) + 4}).narrow(1, before, tensor.size(1));
  rows.copy_(tensor);
  return rows;
}

std::vector<Tensors> matrices(int64_t rows, int64_t columns) {
  at::manual_seed(1);
  const Tensor x = at::randn({rows, columns}), y = at::randn({rows, columns});
  return {{x, y},
          {apart(x), y},
          {not_aligned(x), y},
          {x, turned(y)},
          {turned(x), apart(y)},
          {apart(x, 1), y},
          {turned(x), turned(y)},
          {at::randn({rows + 3, columns}), at::randn({rows + 3, columns})}};
}
std::vector<Tensors> broadcast(int64_t rows, int64_t columns) {
  std::vector<Tensors> all = matrices(rows, columns);
  for (Tensors& inputs : all) inputs[1] = inputs[1].select(0, 1);
  return all;
}

std::vector<Layouts> all_layouts() {
  const auto product = [](const Tensors& x) { return Tensors{(x[0] * x[1]).tanh() + x[0]}; };
  const auto in_parts = [](const Tensors& x) { return Tensors{at::cat({x[0].tanh() * x[1], x[0] - x[1]}, 1)}; };
  const auto padded = [](const Tensors& x) { return Tensors{(at::constant_pad_nd(x[0], {2, 3, 1, 0}) * 2).tanh()}; };
  const auto softmax = [](const Tensors& x) { return Tensors{at::softmax(x[0] * x[1], -1)}; };
  const auto of_columns = [](const Tensors& x) {
    const Tensor y = x[0].tanh() * x[1];
    return Tensors{y, y.sum(0)};
  };
  const auto mean = [](const Tensors& x) { return Tensors{(x[0] * x[1]).mean(1)}; };
  return {{"Product", product, matrices(40, 64)},     {"Broadcast", product, broadcast(33, 32)},
          {"Parts", in_parts, matrices(12, 64)},      {"Padded", padded, matrices(17, 32)},
          {"Softmax", softmax, matrices(9, 128)},     {"SumsOfColumns", of_columns, matrices(700, 32)},
          {"FewLongRows", mean, matrices(3, 1 << 16)}};
}

class PreparedLaunches : public testing::TestWithParam<Layouts> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(PreparedLaunches, EachCallHasItsOwnTensors) {
  const auto& [name, function, inputs] = GetParam();
  const ForwardProgram program(function, inputs[0], SizesAre::Symbols);
  const uint64_t before = prepared_calls_found();
  for (size_t call = 0; call < 6 * inputs.size(); ++call) {
    // Two layouts come often, all others in between. The memory differs each time.
    const size_t which = call % 2 == 0 ? call / 2 % 2 : call / 2 % inputs.size();
    Tensors given = inputs[which];
    for (Tensor& tensor : given) {
      if (!tensor.is_contiguous() || tensor.storage_offset() != 0) continue;
      tensor = tensor * static_cast<int64_t>(call % 3 + 1);
    }
    SCOPED_TRACE(testing::Message() << "call " << call << ", layout " << which);
    Tensors plain;  // the program was captured with these, and its results have their layout
    for (const Tensor& tensor : given) plain.push_back(tensor.contiguous());
    expect_near(program.run(given), function(plain), function(as(plain, at::kDouble)));
    if (HasFailure()) return;
  }
  EXPECT_GE(prepared_calls_found() - before, inputs.size());
}

INSTANTIATE_TEST_SUITE_P(Of, PreparedLaunches, testing::ValuesIn(all_layouts()), testing::PrintToStringParamName());

// The same call alternately writes a leaf's gradient and adds to it; and a number differs in each step.
TEST(PreparedLaunchesOfLeaves, ThatHaveAGradientOrNot) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  at::manual_seed(1);
  hindcast::reset();
  const Tensor x = at::randn({64, 96}).set_requires_grad(true), scale = at::randn({96}).set_requires_grad(true);
  const uint64_t before = prepared_calls_found();
  std::vector<Tensor> expected;
  for (const bool ours : {false, true}) {
    for (const Tensor& leaf : {x, scale}) leaf.mutable_grad() = Tensor();
    for (int step = 0; step < 12; ++step) {
      SCOPED_TRACE(step);
      if (step % 3 == 0) x.mutable_grad() = Tensor();
      if (step % 4 == 1) scale.mutable_grad() = at::ones({97}).slice(0, 1);
      const auto guard = ours ? std::optional(hindcast::enable({.compiler = hindcast::compilers::fused(), .async = false})) : std::nullopt;
      (at::softmax(x * scale, 1) * (1.5 + step) * x).sum().backward();
      if (!ours) {
        for (const Tensor& leaf : {x, scale}) expected.push_back(leaf.grad().clone());
        continue;
      }
      const auto i = 2 * static_cast<size_t>(step);
      EXPECT_TRUE(at::allclose(x.grad(), expected[i], 1e-4, 1e-5));
      EXPECT_TRUE(at::allclose(scale.grad(), expected[i + 1], 1e-4, 1e-5));
    }
  }
  EXPECT_GT(prepared_calls_found(), before);
}

}  // namespace
}  // namespace hindcast::tests::cuda
