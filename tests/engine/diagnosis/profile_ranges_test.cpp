// Every capture is a range `hindcast::trace` and every replay a range `hindcast::run`, for LibTorch's profiler and for any
// other observer of RecordFunction.

#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_legacy.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

using testing::Contains;
using testing::ElementsAre;

/// What an observer sees, in order: "+name" for the start of a range, "-name" for its end. A callback is a plain function.
thread_local std::vector<std::string>* seen = nullptr;

std::unique_ptr<at::ObserverContext> at_start(const at::RecordFunction& range) {
  seen->push_back(std::string("+") + range.name());
  return nullptr;
}
void at_end(const at::RecordFunction& range, at::ObserverContext*) { seen->push_back(std::string("-") + range.name()); }

std::vector<std::string> ranges_of(const std::function<void()>& action) {
  std::vector<std::string> ranges;
  seen = &ranges;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(at_start, at_end));
  action();
  at::removeCallback(handle);
  seen = nullptr;
  return ranges;
}

std::vector<std::string> ours(std::vector<std::string> ranges) {
  std::erase_if(ranges, [](const std::string& range) { return range.find("hindcast::") == std::string::npos; });
  return ranges;
}

class ProfileRanges : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }
  static void backward() { at::ones({3}).set_requires_grad(true).sin().sum().backward(); }
};

TEST_F(ProfileRanges, OfACaptureAndOfARun) {
  const auto guard = hindcast::enable();
  EXPECT_THAT(ours(ranges_of(backward)), ElementsAre("+hindcast::trace", "-hindcast::trace"));
  EXPECT_THAT(ours(ranges_of(backward)), ElementsAre("+hindcast::run", "-hindcast::run"));
}

TEST_F(ProfileRanges, HoldTheOperatorsOfTheBackward) {
  const auto guard = hindcast::enable();
  backward();
  const auto ranges = ranges_of(backward);
  const auto run = std::find(ranges.begin(), ranges.end(), "+hindcast::run");
  const auto cosine = std::find(ranges.begin(), ranges.end(), "+aten::cos");
  const auto end = std::find(ranges.begin(), ranges.end(), "-hindcast::run");
  EXPECT_LT(run, cosine);
  EXPECT_LT(cosine, end);
  EXPECT_NE(end, ranges.end());
}

TEST_F(ProfileRanges, EndWhenAHookThrows) {
  const auto guard = hindcast::enable();
  const auto failing = [](bool fails) {
    const auto y = at::ones({3}).set_requires_grad(true).sin();
    y.register_hook([fails](const at::Tensor&) {
      if (fails) throw std::runtime_error("hook");
    });
    y.sum().backward();
  };
  failing(false);
  const auto ranges = ours(ranges_of([&] { EXPECT_THROW(failing(true), std::runtime_error); }));
  EXPECT_EQ(std::count(ranges.begin(), ranges.end(), "+hindcast::run"), 1);
  EXPECT_EQ(std::count(ranges.begin(), ranges.end(), "-hindcast::run"), 1);
}

TEST_F(ProfileRanges, AreNotThereWithoutAGuard) { EXPECT_THAT(ours(ranges_of(backward)), ElementsAre()); }

TEST_F(ProfileRanges, AreInLibTorchsProfile) {
  using namespace torch::autograd::profiler;
  const auto guard = hindcast::enable();
  backward();
  enableProfilerLegacy(torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::CPU));
  backward();
  std::vector<std::string> names;
  for (const auto& events : disableProfilerLegacy()) {
    for (const LegacyEvent& event : events) names.emplace_back(event.name());
  }
  EXPECT_THAT(names, Contains("hindcast::run"));
}

}  // namespace
}  // namespace hindcast::tests
