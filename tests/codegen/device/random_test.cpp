// Random numbers of kernels: the known answers of Philox2x32.

#include "codegen/device/random.h"

#include <gtest/gtest.h>

namespace hindcast::tests {
namespace {

using device::int32;
using device::int64;
using device::philox;
using device::philox_pair;
using device::uint32;

TEST(DevicePhilox, HasTheKnownAnswers) {
  const auto expect = [](int64 seed, int32 row, uint32 pair, uint32 left, uint32 right) {
    const device::PhiloxPair numbers = philox_pair(seed, row, pair);
    EXPECT_EQ(numbers.left, left);
    EXPECT_EQ(numbers.right, right);
  };
  expect(0, 0, 0, 0x257A3673U, 0xCD26BE2AU);
  expect(0xFFFFFFFF, -1, 0xFFFFFFFFU, 0xAB302C4DU, 0x3DC9D239U);
  expect(0x13198A2E, static_cast<int32>(0x85A308D3), 0x243F6A88, 0xBEDBBE6BU, 0xE4C770B3U);
}

TEST(DevicePhilox, NeighboursShareAPair) {
  for (const int32 column : {0, 2, 1000, 0x7FFFFFFE, -2}) {
    const device::PhiloxPair numbers = philox_pair(5, 6, static_cast<uint32>(column) >> 1);
    EXPECT_EQ(philox(5, 6, column), numbers.left);
    EXPECT_EQ(philox(5, 6, column + 1), numbers.right);
  }
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
