// Each element by itself: four at a time with a tail, and with a stride of the whole grid.

extern "C" __global__ void __launch_bounds__(128) by_fours(const float* __restrict__ a, const float* __restrict__ b, float* out, float factor, int n) {
  const int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (first + 4 <= n) {
    const float4 x = *reinterpret_cast<const float4*>(a + first), y = *reinterpret_cast<const float4*>(b + first);
    *reinterpret_cast<float4*>(out + first) =
        make_float4(x.x * factor + y.x, x.y * factor + y.y, x.z * factor + y.z, x.w * factor + y.w);
  } else {
    for (int i = first; i < n; ++i) out[i] = a[i] * factor + b[i];
  }
}

extern "C" __global__ void by_grid(const double* __restrict__ a, double* out, long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
#pragma unroll 4
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = a[i] * a[i];
}

// In place, on the narrowest and the widest of accesses.
struct alignas(16) Bytes {
  unsigned char byte[16];
};
extern "C" __global__ void flip_bytes(unsigned char* bytes, int n) {
  const int first = 16 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (first + 16 <= n) {
    Bytes all = *reinterpret_cast<Bytes*>(bytes + first);
    for (int i = 0; i < 16; ++i) all.byte[i] = ~all.byte[i];
    *reinterpret_cast<Bytes*>(bytes + first) = all;
  } else {
    for (int i = first; i < n; ++i) bytes[i] = ~bytes[i];
  }
}
