// Random numbers of kernels: the known answers of Philox2x32.

#include "codegen/device/random.h"

#include <gtest/gtest.h>

namespace hindcast::tests {
namespace {

using device::int32;
using device::int64;
using device::philox;

TEST(DevicePhilox, HasTheKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), 0x257A3673U);
  EXPECT_EQ(philox(0xFFFFFFFF, -1, -1), 0xAB302C4DU);
  EXPECT_EQ(philox(0x13198A2E, static_cast<int32>(0x85A308D3), 0x243F6A88), 0xBEDBBE6BU);
}

TEST(DevicePhilox, CountsFromTheRowThatTheSeedsUpperHalfSays) {
  EXPECT_EQ(philox((int64(5) << 32) + 7, 3, 1), philox(7, 8, 1));
  EXPECT_EQ(philox((int64(-1) << 32) + 7, 3, 1), philox(7, 2, 1));
}

TEST(DevicePhilox, AThresholdKeepsNoneOrAll) {
  for (int32 column = 0; column < 1000; ++column) {
    EXPECT_EQ(device::philox_bernoulli<float>(1, 2, column, 0, 3), 0);
    EXPECT_EQ(device::philox_bernoulli<double>(1, 2, column, 0x1p24, 3), 3);
  }
}

}  // namespace
}  // namespace hindcast::tests
