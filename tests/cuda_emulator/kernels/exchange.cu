// Threads that hand numbers to each other.

// Each block turns its part around.
extern "C" __global__ void turn_around(const int* __restrict__ in, int* out, int n) {
  extern __shared__ int smem[];
  const int start = blockIdx.x * blockDim.x, count = min((int)blockDim.x, n - start);
  if (threadIdx.x < count) smem[threadIdx.x] = in[start + threadIdx.x];
  __syncthreads();
  if (threadIdx.x < count) out[start + threadIdx.x] = smem[count - 1 - threadIdx.x];
}

// Within a warp no barrier of the block is needed.
extern "C" __global__ void neighbours(const float* __restrict__ in, float* out, int n) {
  __shared__ float of_warp[8][32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  of_warp[warp][lane] = i < n ? in[i] : 0.0f;
  __syncwarp();
  const float sum = of_warp[warp][lane] + of_warp[warp][lane ^ 1];
  if (i < n) out[i] = sum;
}

// Half of a warp at a time, a double in two halves, votes.
extern "C" __global__ void of_lanes(double* prefix_sums, unsigned* votes) {
  const int lane = threadIdx.x % 32;
  double sum = lane;
  for (int distance = 1; distance < 32; distance *= 2) {
    const double other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  prefix_sums[threadIdx.x] = sum;
  unsigned vote;
  if (lane < 16) {
    vote = __ballot_sync(0x0000ffffu, lane % 3 == 0);
  } else {
    vote = __any_sync(0xffff0000u, lane == 40) + 2 * __all_sync(0xffff0000u, lane > 3);
  }
  votes[threadIdx.x] = vote;
}
