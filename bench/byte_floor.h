#pragma once

#include <ATen/core/Tensor.h>

namespace hindcast::bench {

/// How long this machine takes to move a number of bytes, half of them read and half written.
///
/// The buffers together are as large as what the row has to move, and all their pages have been written before: a row that fits into the
/// caches is compared with a copy that does too, and page faults are not counted.
class ByteFloor {
 public:
  explicit ByteFloor(double bytes);

  void copy() const;

  /// Microseconds of one copy under the row's threads: the median of a few, so that the row's data has left the caches.
  double sample_us() const;

 private:
  at::Tensor from_, to_;
};

}  // namespace hindcast::bench
