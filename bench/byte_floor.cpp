#include "bench/byte_floor.h"

#include <ATen/ATen.h>

#include <vector>

#include "bench/clock.h"
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
  std::vector<double> us;
  for (int i = 0; i < kCopies; ++i) {
    const double start = now_us();
    copy();
    us.push_back(now_us() - start);
  }
  return summarize(us).median;
}

}  // namespace hindcast::bench
