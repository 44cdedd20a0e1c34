#pragma once

#include <ATen/core/Tensor.h>

namespace hindcast::bench {

/// How long this machine takes to move a number of bytes, half of them read and half written.
///
/// The buffers are as large together as what the row has to move, and every page of them has been written
/// before: a row that fits into the caches is held against a copy that does too, and none against page faults.
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
