// Many threads launch and load at once, each with its own device and stream.

#include "codegen/cuda/card.h"
#include "tests/codegen/cuda/driver/fake_driver.h"

#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <thread>
#include <tuple>

namespace hindcast::tests {
namespace {

using codegen::cuda::Card;
using codegen::cuda::Driver;

TEST(CardThreads, EachLaunchesOnItsOwnDeviceAndStream) {
  constexpr int kThreads = 4, kLaunches = 50;
  std::string why_not;
  const codegen::cuda::Nvrtc* const nvrtc = codegen::cuda::Nvrtc::get(&why_not);
  if (nvrtc == nullptr) GTEST_SKIP() << why_not;
  FakeDriver fake;
  fake.argument_bytes = sizeof(int);
  const Driver driver(fake.functions());
  const auto card = Card::open(driver, *nvrtc, &why_not);
  ASSERT_TRUE(card) << why_not;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      FakeGuard::stream_id() = thread;
      start.arrive_and_wait();
      for (int i = 0; i < kLaunches; ++i) {
        const auto module = card->load("object");
        const int argument = 1000 * thread + i;
        card->launch({.function = module->function("dense"),
                      .argument = &argument,
                      .argument_bytes = sizeof(int),
                      .device = {c10::kCUDA, static_cast<c10::DeviceIndex>(thread % 2)}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int> arguments;
  for (const FakeDriver::Launched& launched : fake.launches()) {
    int argument = 0;
    std::memcpy(&argument, launched.argument.data(), sizeof(int));
    const int thread = argument / 1000;
    EXPECT_TRUE(arguments.insert(argument).second) << argument;
    EXPECT_EQ(launched.stream, FakeGuard::stream_of(thread % 2, thread));
    EXPECT_EQ(launched.context, FakeDriver::context_of(thread % 2));
  }
  EXPECT_EQ(arguments.size(), size_t{kThreads * kLaunches});
  EXPECT_EQ(fake.count("cuLibraryUnload"), size_t{kThreads * kLaunches});
}

}  // namespace
}  // namespace hindcast::tests
