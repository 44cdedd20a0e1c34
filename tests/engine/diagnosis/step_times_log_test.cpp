// The log `perf`: a line per step that computes.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hindcast/aot_function.h"
#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests::step_times_log_test {
namespace {

constexpr int64_t kSize = 1024;  // of float32: 4 KiB

void backward() {
  const auto x = at::full({kSize}, 0.5).set_requires_grad(true), w = at::full({kSize}, 2.0);
  (x * w).sum().backward();
}

TEST(LogOfStepTimes, HasALineForEachStepThatComputes) {
  hindcast::reset();
  const auto guard = enable(compilers::eager());
  backward();
  const LogCapture logs("perf");
  backward();
  EXPECT_EQ(logs.count("graph 0: aten::mul: 12.0 KiB in "), 1U) << logs.text();
  EXPECT_EQ(logs.count("% of a copy's bandwidth"), 1U) << logs.text();
  EXPECT_EQ(logs.count("aten::expand"), 0U) << "a view moves nothing";
  EXPECT_EQ(logs.count("AccumulateGrad"), 0U) << "that is of the host";
}

TEST(LogOfStepTimes, HasThoseOfFunctionsToo) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  const auto function = aot_function([](const at::Tensor& x) { return x.sin().sum(); }, options);
  const auto step = [&] { function(at::full({kSize}, 0.5).set_requires_grad(true)).backward(); };
  step();
  const LogCapture logs("perf");
  step();
  EXPECT_EQ(logs.count(": aten::sin: 8.0 KiB in "), 1U) << logs.text();
  EXPECT_EQ(logs.count(": aten::cos: 8.0 KiB in "), 1U) << logs.text();
}

TEST(LogOfStepTimes, IsEmptyWhereNobodyAsks) {
  hindcast::reset();
  const auto guard = enable(compilers::eager());
  const LogCapture logs("recompiles");
  for (int i = 0; i < 3; ++i) backward();
  EXPECT_EQ(logs.count(" KiB in "), 0U) << logs.text();
}

}  // namespace
}  // namespace hindcast::tests::step_times_log_test
