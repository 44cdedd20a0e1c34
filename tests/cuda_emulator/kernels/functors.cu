// All functors of functors.inc on all pairs of numbers: one row of results for each.

#include "codegen/device/ops.h"

namespace hindcast::device {

template <class T>
__device__ void results_of_all(const T* xs, const T* ys, T* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const T x = xs[i], y = ys[i];
  int row = 0;
#define HC_EACH(name, expression) out[row++ * n + i] = expression;
#include "tests/cuda_emulator/functors.inc"
#undef HC_EACH
}

}  // namespace hindcast::device

extern "C" __global__ void functors_float(const float* __restrict__ x, const float* __restrict__ y, float* out, int n) {
  hindcast::device::results_of_all(x, y, out, n);
}
extern "C" __global__ void functors_double(const double* __restrict__ x, const double* __restrict__ y, double* out, int n) {
  hindcast::device::results_of_all(x, y, out, n);
}
