// Sums of rows and of columns, of a matrix whose rows lie one after the other.

__device__ __forceinline__ float sum_of_warp(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// Each block a row.
extern "C" __global__ void __launch_bounds__(256) sums_of_rows(const float* __restrict__ in, float* out, int columns) {
  __shared__ float of_warps[32];
  const float* row = in + (long long)blockIdx.x * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
  sum = sum_of_warp(sum);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (lane == 0) of_warps[warp] = sum;
  __syncthreads();
  if (warp != 0) return;
  sum = sum_of_warp(lane < warps ? of_warps[lane] : 0.0f);
  if (lane == 0) out[blockIdx.x] = sum;
}

// First stage: each block 32 columns of some rows. Its threads lie (32, 8).
template <int kWidth, int kHeight>
__device__ void sums_of_part(const float* in, float* parts, int rows, int columns, int rows_of_block) {
  __shared__ float tile[kHeight][kWidth + 1];
  const int column = blockIdx.x * kWidth + threadIdx.x, first = blockIdx.y * rows_of_block;
  float sum = 0.0f;
  if (column < columns) {
    for (int row = first + threadIdx.y; row < min(first + rows_of_block, rows); row += kHeight) sum += in[(long long)row * columns + column];
  }
  tile[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (int half = kHeight / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) tile[threadIdx.y][threadIdx.x] += tile[threadIdx.y + half][threadIdx.x];
    __syncthreads();
  }
  if (threadIdx.y == 0 && column < columns) parts[(long long)blockIdx.y * columns + column] = tile[0][threadIdx.x];
}
extern "C" __global__ void sums_of_columns_parts(const float* __restrict__ in, float* parts, int rows, int columns, int rows_of_block) {
  sums_of_part<32, 8>(in, parts, rows, columns, rows_of_block);
}

extern "C" __global__ void sums_of_columns(const float* __restrict__ parts, float* out, int count, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int part = 0; part < count; ++part) sum += parts[(long long)part * columns + column];
  out[column] = sum;
}

extern "C" __global__ void sum_by_atomics(const int* __restrict__ in, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, in[i]);
}
