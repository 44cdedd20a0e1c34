// Options::verify must find a kernel that is wrong.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "codegen/cpu/backend.h"
#include "codegen/cpu/cost_model.h"
#include "codegen/cpu/kernel_call.h"
#include "codegen/fuse/fuse.h"
#include "codegen/kernel/check_kernel.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

/// A graph, and the values of its one kernel, computed by ATen.
struct Captured {
  /// Of x.mul(2).tanh().
  explicit Captured(at::ScalarType type = at::kFloat) {
    at::Tensor y;
    capture(type, [&] {
      y = at::full({6}, 0.25, type).set_requires_grad(true).mul(2).tanh();
      y.sum().backward(at::ones({}, type));
    });
    values[group.loads.at(1).index] = y.detach();
    graph->replay(values);
  }

  explicit Captured(const std::function<void()>& backward) {
    capture(at::kFloat, backward);
    graph->replay(values);
  }

  void capture(at::ScalarType type, const std::function<void()>& backward) {
    hindcast::reset();
    const Compiler keep([this](const std::shared_ptr<const Graph>& captured) {
      graph = captured;
      return std::vector<SegmentFunction>(captured->segments().size());
    });
    const auto guard = hindcast::enable(keep);
    backward();
    group = codegen::fuse(*graph, codegen::cpu::cost_model()).groups.at(0);
    values[group.loads.at(0).index] = at::ones({}, type);
  }

  std::optional<std::string> check(codegen::cpu::DenseKernel* dense, codegen::cpu::LeavesKernel* leaves = nullptr) const {
    auto kernel = std::make_shared<codegen::cpu::CpuKernel>();
    kernel->dense = dense;
    kernel->leaves = leaves;
    capture::Env env;
    capture::Evaluator(*graph->symbols).evaluate(capture::bindings_at_capture(*graph->symbols), env);
    return codegen::find_difference(codegen::cpu::cpu_backend(), *graph, group, kernel, values, env);
  }

  std::shared_ptr<const Graph> graph;
  codegen::Group group;
  std::unordered_map<uint32_t, at::Tensor> values;
};

template <int kWrong>
void kernel(const device::LoopArguments& arguments) {
  const auto [pointers, scalars, count] = arguments;
  const float gradient = *reinterpret_cast<const float*>(pointers[0]);
  const auto* y = reinterpret_cast<const float*>(pointers[1]);
  auto* result = reinterpret_cast<float*>(pointers[2]);
  for (long i = 0; i < count; ++i) result[i] = gradient * (1 - y[i] * y[i]) * static_cast<float>(scalars[0]);
  if (kWrong == 1) result[count - 1] *= 1.0001F;
  if (kWrong == 2) result[0] = NAN;
}

TEST(CheckKernel, PassesWhatComputesTheSame) { EXPECT_EQ(Captured().check(kernel<0>), std::nullopt); }

TEST(CheckKernel, FindsOneElementThatIsOff) {
  const auto wrong = Captured().check(kernel<1>);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->find("a kernel of 2 ops is wrong: its result 0 is off by"), std::string::npos) << *wrong;
}

TEST(CheckKernel, FindsANaN) {
  const auto wrong = Captured().check(kernel<2>);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->find("has other infinities or NaN than ATen's"), std::string::npos) << *wrong;
}

template <bool kWrong>
void complex_kernel(const device::LoopArguments& arguments) {
  const auto [pointers, scalars, count] = arguments;
  using Number = c10::complex<float>;
  const Number gradient = *reinterpret_cast<const Number*>(pointers[0]);
  const auto* y = reinterpret_cast<const Number*>(pointers[1]);
  auto* result = reinterpret_cast<Number*>(pointers[2]);
  for (long i = 0; i < count; ++i) result[i] = gradient * std::conj(Number(1) - y[i] * y[i]) * static_cast<float>(scalars[0]);
  if (kWrong) result[count - 1] += Number(0, 1e-4F);
}

TEST(CheckKernel, LooksAtBothPartsOfComplexNumbers) {
  EXPECT_EQ(Captured(at::kComplexFloat).check(complex_kernel<false>), std::nullopt);
  EXPECT_TRUE(Captured(at::kComplexFloat).check(complex_kernel<true>));
}

std::vector<long> has_no_term;  // by run

template <bool kWrong>
void leaves_kernel(const device::LeavesArguments& arguments) {
  const auto [pointers, scalars, count, is_block] = arguments;
  kernel<0>({pointers, scalars, count});
  auto* sum = reinterpret_cast<float*>(pointers[3]);
  const auto* term = reinterpret_cast<const float*>(pointers[4]);
  if (has_no_term.empty() || has_no_term.back() != is_block[2]) has_no_term.push_back(is_block[2]);
  for (long i = 0; i < count; ++i) sum[i] = term[i] + reinterpret_cast<const float*>(pointers[2])[i];
  if (kWrong) sum[count - 1] += 1e-6F;
}

template <bool kWrong>
void parts_kernel(const device::LoopArguments& arguments) {
  const auto [pointers, scalars, count] = arguments;
  EXPECT_EQ(count, 16);  // a row of one part; the second part's gradient is computed first
  for (const int part : {0, 1}) {
    auto* result = reinterpret_cast<float*>(pointers[1 + part]);
    for (long i = 0; i < count; ++i) result[i] = *reinterpret_cast<const float*>(pointers[0]) * static_cast<float>(scalars[1 - part]);
    if (kWrong && part == 1) result[count - 1] *= 1.0001F;
  }
}

TEST(CheckKernel, FindsAPartOfAConcatThatIsOff) {
  const Captured captured([] {
    const auto parts = at::ones({3, 32}).set_requires_grad(true).chunk(2, 1);
    const auto first = parts[0] * 2, second = parts[1] * 3;
    (first + second).sum().backward();
  });
  ASSERT_EQ(captured.group.concats.size(), 1U);
  EXPECT_EQ(captured.check(parts_kernel<false>), std::nullopt);
  const auto wrong = captured.check(parts_kernel<true>);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->find("is wrong: its result 0 is off by"), std::string::npos) << *wrong;
}

TEST(CheckKernel, FindsALeafThatGetsAnotherResult) {
  Captured captured;
  ASSERT_EQ(captured.group.leaves.size(), 1U);
  captured.group.body.stores[0].leaves = 1;  // as for a large one
  has_no_term.clear();
  EXPECT_EQ(captured.check(kernel<0>, leaves_kernel<false>), std::nullopt);
  EXPECT_EQ(has_no_term, (std::vector<long>{1, 0})) << "at first there is nothing to add to, then there is";
  const auto wrong = captured.check(kernel<0>, leaves_kernel<true>);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->find("to leaves it writes another result 0"), std::string::npos) << *wrong;
}

// In a sum of two layouts the stride of such a dim depends on the order of the operands.
TEST(CheckKernel, StridesOfDimsOfOneElementSayNothing) {
  hindcast::reset();
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  options.verify = true;
  const auto strided = at::linspace(1, 2, 8, at::kDouble).as_strided({2, 2, 2, 1, 1}, {1, 4, 2, 2, 8});
  const auto dense = at::linspace(2, 3, 8, at::kDouble).view({2, 2, 2, 1, 1});
  const auto guard = hindcast::enable(options);
  for (int step = 0; step < 3; ++step) {
    const auto w = at::ones({2, 2, 2, 1, 1}, at::kDouble).set_requires_grad(true);
    ((w * dense).sum({0, 1, 2}) + (w * strided).sum({0, 1, 2})).sum().backward();
    EXPECT_TRUE(at::allclose(w.grad(), strided + dense));
  }
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
  EXPECT_EQ(hindcast::stats().fused_graphs, 1U);
}

}  // namespace
}  // namespace hindcast::tests
