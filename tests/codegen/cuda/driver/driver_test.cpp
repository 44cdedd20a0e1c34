// The driver is opened, or an error says why not; its errors are exceptions with its own text.

#include "codegen/cuda/driver.h"
#include "tests/codegen/cuda/driver/fake_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hindcast::tests {
namespace {

using codegen::cuda::Driver;
using codegen::cuda::DriverError;
using testing::HasSubstr;

TEST(Driver, OneThatIsNotThereIsNamed) {
  std::string why_not;
  EXPECT_EQ(Driver::open("/nonexistent/libcuda.so.1", &why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("There is no NVIDIA driver: /nonexistent/libcuda.so.1"));
  EXPECT_EQ(Driver::open("/nonexistent/libcuda.so.1", nullptr), nullptr);
}

TEST(Driver, OneThatLacksAFunctionIsTooOld) {
  std::string why_not;
  EXPECT_EQ(Driver::open("libm.so.6", &why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("older than CUDA 12: libm.so.6 has no cuGetErrorName"));
}

TEST(Driver, AnErrorNamesTheCallTheCodeAndTheDriversWords) {
  FakeDriver fake;
  const Driver driver(fake.functions());
  EXPECT_NO_THROW(driver.check(0, "cuLaunchKernel"));
  try {
    driver.check(kOutOfMemory, "cuLaunchKernel", "a grid of 7 blocks");
    FAIL() << "no exception";
  } catch (const DriverError& error) {
    EXPECT_STREQ(error.what(), "cuLaunchKernel failed for a grid of 7 blocks: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
    EXPECT_EQ(error.result(), kOutOfMemory);
  }
}

TEST(Driver, AnErrorThatTheDriverDoesNotKnowHasItsNumber) {
  FakeDriver fake;
  const Driver driver(fake.functions());
  try {
    driver.check(kUnknown, "cuCtxGetCurrent");
    FAIL() << "no exception";
  } catch (const DriverError& error) {
    EXPECT_STREQ(error.what(), "cuCtxGetCurrent failed: an unknown error (999): no words");
  }
}

TEST(Driver, KnowsWhetherSomebodyInitialisedIt) {
  FakeDriver fake;
  const Driver driver(fake.functions());
  EXPECT_TRUE(driver.initialised());
  fake.failing = "cuDeviceGetCount";
  EXPECT_TRUE(driver.initialised());  // the next call reports what is wrong
  fake.failure = 3;
  EXPECT_FALSE(driver.initialised());
}

}  // namespace
}  // namespace hindcast::tests
