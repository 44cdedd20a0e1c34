// What was measured once is not measured again, in whichever process.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "codegen/layouts/convolution_times.h"
#include "codegen/layouts/kept_times.h"
#include "codegen/store/store_folder.h"

namespace hindcast::tests {
namespace {

class KeptTimes : public testing::Test {
 protected:
  void SetUp() override {
    if (codegen::store::default_store_folder().empty()) GTEST_SKIP() << "no folder for kernels: HINDCAST_CACHE_DIR is set to nothing";
  }
};

codegen::Convolution convolution_of(int64_t channels) {
  return {.input = {1, channels, 5, 7}, .weight = {8, channels, 3, 3}, .stride = {1}, .padding = {1}, .dilation = {1}};
}

TEST_F(KeptTimes, AreReadWhereTheyWereMeasured) {
  const codegen::Convolution of = convolution_of(19);
  codegen::keep_times("convolution", of.numbers(), {{123.5, 45.25, 1, 0, 1}, 3});
  const codegen::ConvolutionTimes times = codegen::times_of(of);
  EXPECT_EQ(times.plain_us, 123.5);
  EXPECT_EQ(times.last_us, 45.25);
  EXPECT_TRUE(times.output_is_last);
  EXPECT_FALSE(times.input_gradient_is_last);
  EXPECT_TRUE(times.weight_gradient_is_last);
}

TEST_F(KeptTimes, AreThoseOfTheSettings) {
  const std::vector<int64_t> sizes = convolution_of(23).numbers();
  const int threads = at::get_num_threads();
  codegen::keep_times("convolution", sizes, {{1, 2}});
  at::set_num_threads(threads + 1);
  EXPECT_FALSE(codegen::kept_times("convolution", sizes, 2).has_value());
  at::set_num_threads(threads);
  at::globalContext().setUserEnabledMkldnn(false);
  EXPECT_FALSE(codegen::kept_times("convolution", sizes, 2).has_value());
  at::globalContext().setUserEnabledMkldnn(true);
  EXPECT_FALSE(codegen::kept_times("copy", sizes, 1).has_value());
  const auto kept = codegen::kept_times("convolution", sizes, 2);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->times, (std::vector<double>{1, 2}));
}

// A former process was held up while it measured the one, and was not for the other.
TEST_F(KeptTimes, AreMeasuredByTheFirstProcesses) {
  const codegen::Convolution of = convolution_of(31);
  codegen::keep_times("convolution", of.numbers(), {{1e9, 1e-9, 1, 1, 1}, 2});
  const codegen::ConvolutionTimes times = codegen::times_of(of);
  EXPECT_LT(times.plain_us, 1e9);
  EXPECT_EQ(times.last_us, 1e-9);
  const auto kept = codegen::kept_times("convolution", of.numbers(), 5);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->measurements, 3);
  EXPECT_EQ(kept->times[0], times.plain_us);
  EXPECT_EQ(kept->times[1], 1e-9);
}

TEST_F(KeptTimes, AreMeasuredOnceByAProcess) {
  const codegen::Convolution of = convolution_of(29);
  const codegen::ConvolutionTimes first = codegen::times_of(of), second = codegen::times_of(of);
  EXPECT_GT(first.plain_us, 0);
  EXPECT_EQ(first.plain_us, second.plain_us);
  const auto kept = codegen::kept_times("convolution", of.numbers(), 5);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->times[1], first.last_us);
}

}  // namespace
}  // namespace hindcast::tests
