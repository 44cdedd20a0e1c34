#pragma once
// The run times of LibTorch's convolutions, forward plus backward, in the two layouts of images. Measured on first use and kept, also for
// later processes (kept_times.h). CPU time decides (one_thread.h), so that load on the machine does not. Because CPU time of one thread
// does not show how well the work scales over threads, wall-clock time is measured too.

#include <cstdint>
#include <vector>

namespace hindcast::codegen {

/// One convolution of float32 images on the CPU, not transposed.
struct Convolution {
  std::vector<int64_t> input, weight;              // sizes: N, C, H, W; out, in / groups, kH, kW
  std::vector<int64_t> stride, padding, dilation;  // one number for both dims, or one for each
  int64_t groups = 1;
  bool has_bias = false;
  bool gives_input_gradient = true;

  /// All fields, encoded as numbers; different convolutions have different ones.
  std::vector<int64_t> numbers() const;
};

/// The minimum over several runs.
struct RunTime {
  double cpu_us = 0;    // CPU time of one thread, for its share of the images
  double clock_us = 0;  // wall-clock time with all threads

  RunTime& operator+=(const RunTime& other) {
    cpu_us += other.cpu_us;
    clock_us += other.clock_us;
    return *this;
  }
};

/// Whose measurements are accepted.
enum class Measured {
  BySomeProcess,  // any process'; this one measures if no other has, or if the measurement is due for a repeat
  ByThisProcess,
};

struct ConvolutionTimes {
  RunTime plain, last;  // contiguous and channels-last, without conversion of operands
  // Which results are channels-last if all operands are.
  bool output_is_last = false, input_gradient_is_last = false, weight_gradient_is_last = false;
};

/// Measures with LibTorch's current settings: intra-op threads, oneDNN or not. Runs the convolution several times. Thread-safe.
ConvolutionTimes times_of(const Convolution& convolution, Measured by);

/// The time to copy an image with these sizes into the other layout.
RunTime copy_time(const std::vector<int64_t>& sizes, Measured by);

}  // namespace hindcast::codegen
