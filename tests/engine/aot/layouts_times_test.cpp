// Measurements are shared between processes and rarely repeated; and what is measured.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "codegen/layouts/convolution_times.h"
#include "codegen/layouts/kept_times.h"
#include "codegen/layouts/one_thread.h"
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

using codegen::Measured;

constexpr size_t kNumbers = 7;

TEST_F(KeptTimes, AreReadWhereTheyWereMeasured) {
  const codegen::Convolution of = convolution_of(19);
  codegen::keep_times("convolution", of.numbers(), {{123.5, 60, 45.25, 30, 1, 0, 1}, 3, 4});
  const codegen::ConvolutionTimes times = codegen::times_of(of, Measured::BySomeProcess);
  EXPECT_EQ(times.plain.cpu_us, 123.5);
  EXPECT_EQ(times.plain.clock_us, 60);
  EXPECT_EQ(times.last.cpu_us, 45.25);
  EXPECT_EQ(times.last.clock_us, 30);
  EXPECT_TRUE(times.output_is_last);
  EXPECT_FALSE(times.input_gradient_is_last);
  EXPECT_TRUE(times.weight_gradient_is_last);
  EXPECT_EQ(codegen::kept_times("convolution", of.numbers(), kNumbers)->processes, 5);
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
  EXPECT_FALSE(codegen::kept_times("copy", sizes, 2).has_value());
  const auto kept = codegen::kept_times("convolution", sizes, 2);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->times, (std::vector<double>{1, 2}));
}

// An earlier process may have been held up during one of the measurements. The first processes measure, then ever fewer of them.
TEST_F(KeptTimes, AreTriedAgain) {
  int64_t channels = 31;
  for (const auto& [measurements, processes, is_tried] : std::vector<std::tuple<int, int, bool>>{
           {1, 1, true}, {2, 2, true}, {3, 3, true}, {3, 4, false}, {3, 6, false}, {4, 7, true}, {4, 8, false}, {9, 1023, true}}) {
    const codegen::Convolution of = convolution_of(channels++);
    codegen::keep_times("convolution", of.numbers(), {{1e9, 1e9, 1e-9, 1e-9, 1, 1, 1}, measurements, processes});
    const codegen::ConvolutionTimes times = codegen::times_of(of, Measured::BySomeProcess);
    EXPECT_EQ(times.plain.cpu_us < 1e9, is_tried) << processes;
    const auto kept = codegen::kept_times("convolution", of.numbers(), kNumbers);
    ASSERT_TRUE(kept.has_value());
    EXPECT_EQ(kept->measurements, measurements + (is_tried ? 1 : 0));
    EXPECT_EQ(kept->processes, processes + 1);
    EXPECT_EQ(kept->times[0], times.plain.cpu_us);
    EXPECT_EQ(times.last.cpu_us, 1e-9) << "the least";
    EXPECT_EQ(kept->times[2], 1e-9);
  }
}

// A layout is not changed because of another process's measurement.
TEST_F(KeptTimes, AreNotThoseOfThisProcess) {
  const codegen::Convolution of = convolution_of(61);
  codegen::keep_times("convolution", of.numbers(), {{1e9, 1e9, 1e-9, 1e-9, 1, 1, 1}, 9, 9});
  EXPECT_EQ(codegen::times_of(of, Measured::BySomeProcess).last.cpu_us, 1e-9);
  const codegen::ConvolutionTimes own = codegen::times_of(of, Measured::ByThisProcess);
  EXPECT_GT(own.last.cpu_us, 1e-9);
  EXPECT_LT(own.plain.cpu_us, 1e9);
  EXPECT_EQ(codegen::times_of(of, Measured::ByThisProcess).last.cpu_us, own.last.cpu_us);

  codegen::keep_times("copy", {2, 3, 61, 7}, {{1e-9, 1e-9}, 9, 9});
  EXPECT_EQ(codegen::copy_time({2, 3, 61, 7}, Measured::BySomeProcess).cpu_us, 1e-9);
  EXPECT_GT(codegen::copy_time({2, 3, 61, 7}, Measured::ByThisProcess).cpu_us, 1e-9);
}

TEST_F(KeptTimes, AreMeasuredOnceByAProcess) {
  const codegen::Convolution of = convolution_of(29);
  codegen::keep_times("convolution", of.numbers(), {{1e9, 1e9, 1e9, 1e9, 1, 1, 1}, 1, 1});
  const codegen::ConvolutionTimes first = codegen::times_of(of, Measured::BySomeProcess),
                                  second = codegen::times_of(of, Measured::ByThisProcess);
  EXPECT_GT(first.plain.cpu_us, 0);
  EXPECT_GT(first.plain.clock_us, 0);
  EXPECT_EQ(first.plain.cpu_us, second.plain.cpu_us);
  const auto kept = codegen::kept_times("convolution", of.numbers(), kNumbers);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->times[2], first.last.cpu_us);
}

// ---- the clock

constexpr double kWorkUs = 10e3;

void work() {
  for (const double end = codegen::cpu_us() + kWorkUs; codegen::cpu_us() < end;) continue;
}

TEST(OneThread, DoesAllRegions) {
  std::set<std::thread::id> threads;
  double us = codegen::cpu_us();
  codegen::on_one_thread([&] {
    at::parallel_for(0, 4, 1, [&](int64_t begin, int64_t end) {
      threads.insert(std::this_thread::get_id());
      for (; begin < end; ++begin) work();
    });
  });
  us = codegen::cpu_us() - us;
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
  EXPECT_GE(us, 4 * kWorkUs);
}

TEST(OneThread, DoesNotCountOthers) {
  const double start = codegen::cpu_us();
  std::thread other([] {
    for (int i = 0; i < 5; ++i) work();
  });
  other.join();
  EXPECT_LT(codegen::cpu_us() - start, 4 * kWorkUs);
}

}  // namespace
}  // namespace hindcast::tests
