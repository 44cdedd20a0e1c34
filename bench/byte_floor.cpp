#include "bench/byte_floor.h"

#include <ATen/ATen.h>

#include <chrono>
#include <vector>

#include "bench/summary.h"

namespace hindcast::bench {
namespace {

constexpr int kCopies = 3;

}  // namespace

ByteFloor::ByteFloor(double bytes) {
  const auto floats = static_cast<int64_t>(bytes / 2 / sizeof(float));
  from_ = at::ones({floats});
  to_ = at::ones({floats});
}

void ByteFloor::copy() const { to_.copy_(from_); }

double ByteFloor::sample_us() const {
  using Clock = std::chrono::steady_clock;
  std::vector<double> us;
  for (int i = 0; i < kCopies; ++i) {
    const Clock::time_point start = Clock::now();
    copy();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return summarize(us).median;
}

}  // namespace hindcast::bench
