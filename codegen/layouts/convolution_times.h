#pragma once
// What LibTorch's convolutions take, forward and backward together, in the two layouts of images. Measured when somebody first asks, and kept,
// for later processes too (kept_times.h). CPU time decides (one_thread.h): a busy machine must not. Since that says nothing of
// how well many threads share the work, there is the time by the clock too.

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

  /// All of that: no two convolutions have the same.
  std::vector<int64_t> numbers() const;
};

/// The least of some runs.
struct RunTime {
  double cpu_us = 0;    // of one thread, for its share of the images
  double clock_us = 0;  // of all, by the clock

  RunTime& operator+=(const RunTime& other) {
    cpu_us += other.cpu_us;
    clock_us += other.clock_us;
    return *this;
  }
};

/// Who measured.
enum class Measured {
  BySomeProcess,  // this one where no other has, or where it is time to try again
  ByThisProcess,
};

struct ConvolutionTimes {
  RunTime plain, last;  // of operands that lie so already
  // What lies channels-last where all operands do.
  bool output_is_last = false, input_gradient_is_last = false, weight_gradient_is_last = false;
};

/// With LibTorch's settings as they are now: intra-op threads, oneDNN or not. Takes some runs of the convolution. Safe from many threads.
ConvolutionTimes times_of(const Convolution& convolution, Measured by);

/// Of a copy of an image with these sizes into the other layout.
RunTime copy_time(const std::vector<int64_t>& sizes, Measured by);

}  // namespace hindcast::codegen
