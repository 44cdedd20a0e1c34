// A guard belongs to the thread that created it. Destroyed elsewhere, it reports that, and neither thread changes.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <future>
#include <memory>
#include <thread>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

TEST(AGuardDestroyedOnAnotherThread, IsAnErrorInTheLogAndChangesNothing) {
  hindcast::reset();
  LogCapture logs("");
  std::promise<std::unique_ptr<Guard>> made;
  std::promise<void> destroyed;
  std::thread owner([&] {
    made.set_value(std::make_unique<Guard>(hindcast::enable()));
    destroyed.get_future().wait();
    EXPECT_TRUE(hindcast::active());
    at::ones({3}).set_requires_grad(true).exp().sum().backward();
  });
  made.get_future().get().reset();
  EXPECT_FALSE(hindcast::active());
  destroyed.set_value();
  owner.join();
  EXPECT_EQ(hindcast::stats().backwards, 1U);
  EXPECT_EQ(logs.count("error: a guard was destroyed on another thread"), 1U) << logs.text();
}

TEST(AGuardDestroyedOnAnotherThread, LeavesTheOtherThreadsGuardAlone) {
  LogCapture logs("");
  const auto mine = hindcast::enable();
  std::promise<std::unique_ptr<Guard>> made;
  std::thread owner([&] { made.set_value(std::make_unique<Guard>(hindcast::enable())); });
  owner.join();
  made.get_future().get().reset();
  EXPECT_TRUE(hindcast::active());
}

}  // namespace
}  // namespace hindcast::tests
