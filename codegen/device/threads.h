#pragma once
// Operations of the threads of a block. A block of a row kernel has blockDim.y rows at a time, of blockDim.x threads each: a power of two,
// and whole warps in all. All threads of the block must call these functions, as they contain barriers.

#include "codegen/device/complex.h"
#include "codegen/device/indexing.h"
#include "codegen/device/powers.h"
#include "codegen/device/reductions.h"

#if HC_CUDA
namespace hindcast::device {

inline constexpr int kMostWarps = 32;            // of a block
inline constexpr int kBytesOfNumbers = 8 << 10;  // of shared memory, for numbers that rows of a block hand each other
inline constexpr unsigned kWholeWarp = 0xffffffffu;

HC_DEVICE float from_lane(float value, int distance) { return __shfl_xor_sync(kWholeWarp, value, distance); }
HC_DEVICE double from_lane(double value, int distance) { return __shfl_xor_sync(kWholeWarp, value, distance); }
template <class T>
HC_DEVICE Complex<T> from_lane(Complex<T> value, int distance) {
  return {from_lane(value.real, distance), from_lane(value.imag, distance)};
}
/// Moments with the mean relative to a number near it. An absolute mean is rounded at its magnitude, which may be large compared with the
/// numbers' deviations. The count is a T: float32 rounds counts above 2^24, by no more than it rounds the mean.
template <class T>
struct MomentsFrom {
  T count, from, mean, m2;
};

template <class T>
HC_DEVICE MomentsFrom<T> merge(MomentsFrom<T> a, MomentsFrom<T> b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const T count = a.count + b.count, distance = (b.from - a.from) + (b.mean - a.mean);
  const T share = a.count == b.count ? T(0.5) : b.count / count;  // counts are mostly equal, and a division takes as long as the rest
  // `whole` is the mean, rounded: what is left of it is small, though `a` may begin far from it.
  const T mean = a.mean + distance * share, whole = a.from + mean;
  return {count, whole, (a.from - whole) + mean, a.m2 + b.m2 + distance * distance * (a.count * share)};
}

template <class T>
HC_DEVICE MomentsFrom<T> from_lane(MomentsFrom<T> value, int distance) {
  return {from_lane(value.count, distance), from_lane(value.from, distance), from_lane(value.mean, distance),
          from_lane(value.m2, distance)};
}
template <class T>
HC_DEVICE PowersFrom<T> from_lane(PowersFrom<T> value, int distance) {
  return {from_lane(value.largest, distance), from_lane(value.from, distance), from_lane(value.sum, distance),
          from_lane(value.rest, distance)};
}

template <class T>
struct Adds {
  using Type = T;
  HC_DEVICE_MEMBER T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct Larger {
  using Type = T;
  HC_DEVICE_MEMBER T operator()(T a, T b) const { return maximum<T>(a, b); }
};
template <class T>
struct Smaller {
  using Type = T;
  HC_DEVICE_MEMBER T operator()(T a, T b) const { return minimum<T>(a, b); }
};
/// Merges two numbers that have a merge() of their own.
template <class Pair>
struct Merges {
  using Type = Pair;
  HC_DEVICE_MEMBER Pair operator()(Pair a, Pair b) const { return merge(a, b); }
};

/// The moments of some numbers of one thread: Welford's pair in two passes over registers.
template <int kCount, class T>
HC_DEVICE MomentsFrom<T> moments_of_registers(const T (&numbers)[kCount]) {
  T from_first = T(0), squares = T(0);
#pragma unroll
  for (int i = 1; i < kCount; ++i) from_first += numbers[i] - numbers[0];
  from_first = from_first / T(kCount);
#pragma unroll
  for (int i = 0; i < kCount; ++i) squares += square((numbers[i] - numbers[0]) - from_first);
  return {kCount, numbers[0], from_first, squares};
}

/// Combines the values of `lanes` neighbouring lanes, a power of two. Each lane gets the same result.
template <class Combine>
HC_DEVICE typename Combine::Type over_lanes(typename Combine::Type value, int lanes, Combine combine) {
  for (int distance = 1; distance < lanes; distance *= 2) {
    const typename Combine::Type other = from_lane(value, distance);
    // The lower lane's comes first in both: a merge of two pairs rounds otherwise the other way round. Chosen before, as both halves of a
    // warp would go through both merges.
    const bool is_lower = (threadIdx.x & distance) == 0;
    value = combine(is_lower ? value : other, is_lower ? other : value);
  }
  return value;
}

/// Over the threads of a row; each of them gets exactly the same result. The order of the sum is always that of the threads.
template <class Combine>
HC_DEVICE typename Combine::Type over_row(typename Combine::Type value, Combine combine) {
  using T = typename Combine::Type;
  const int threads = blockDim.x;
  value = over_lanes(value, threads < 32 ? threads : 32, combine);
  if (threads <= 32) return value;
  __shared__ T of_warps[kMostWarps];
  const int warps = threads / 32, first = threadIdx.y * warps;
  __syncthreads();  // the numbers of the previous reduction have been read
  if (threadIdx.x % 32 == 0) of_warps[first + threadIdx.x / 32] = value;
  __syncthreads();
  return over_lanes(of_warps[first + (threadIdx.x & (warps - 1))], warps, combine);  // the same in every warp
}

/// The same for several sums, which share the barriers. The order of the lanes makes no difference to a sum of two.
template <int kCount, class T>
HC_DEVICE void sums_over_row(T (&values)[kCount]) {
  const int threads = blockDim.x;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    if (distance >= threads) break;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = values[i] + from_lane(values[i], distance);
  }
  if (threads <= 32) return;
  __shared__ T of_warps[kMostWarps][kCount];
  const int warps = threads / 32, first = threadIdx.y * warps;
  __syncthreads();  // the numbers of the previous sums have been read
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) of_warps[first + threadIdx.x / 32][i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = of_warps[first + (threadIdx.x & (warps - 1))][i];
#pragma unroll
  for (int distance = 1; distance < kMostThreadsOfRow / 32; distance *= 2) {
    if (distance >= warps) break;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = values[i] + from_lane(values[i], distance);
  }
}

/// Over the rows that a block has at a time, each of a thread's numbers with those of its column: the results are those of the first row's
/// threads. A block of several rows has kThreads threads, and a power of two of rows. Barriers are for many numbers together, as far as the
/// shared memory goes that a block has for numbers.
template <int kCount, class Combine>
HC_DEVICE void over_rows_of_block(typename Combine::Type (&values)[kCount], Combine combine) {
  using T = typename Combine::Type;
  constexpr int kRoom = kBytesOfNumbers / int(kThreads * sizeof(T)), kAtOnce = kRoom < 1 ? 1 : kRoom < kCount ? kRoom : kCount;
  static_assert(kCount % kAtOnce == 0, "powers of two");
  if (blockDim.y == 1) return;
  __shared__ T of_threads[kAtOnce][kThreads];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int first = 0; first < kCount; first += kAtOnce) {
    __syncthreads();  // the numbers of the previous reduction have been read
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) of_threads[i][thread] = values[first + i];
#pragma unroll 1
    for (unsigned rows = blockDim.y / 2; rows > 0; rows /= 2) {
      __syncthreads();
      if (threadIdx.y >= rows) continue;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        values[first + i] = combine(values[first + i], of_threads[i][thread + rows * blockDim.x]);
        of_threads[i][thread] = values[first + i];
      }
    }
  }
}

/// Stores a result, or adds it to a leaf's existing gradient.
template <class T>
HC_DEVICE void put_result(T* to, T value, bool adds) {
  *to = adds ? convert<T>(widen(*to) + widen(value)) : value;
}

/// A number of a slice of the rows, of which there may be one: then it is a result, of another type.
template <class Result, class T>
HC_DEVICE void store_result(char* memory, int64 slice_bytes, bool is_whole, bool adds, int64 at, T value) {
  if (is_whole) {
    put_result(reinterpret_cast<Result*>(memory) + at, convert<Result>(value), adds);
  } else {
    reinterpret_cast<T*>(memory + blockIdx.x * slice_bytes)[at] = value;
  }
}

/// Shared memory for elements of this size.
HC_DEVICE int64 bytes_kept(int64 elements, int size) { return (elements * size + 15) / 16 * 16; }

/// Slices take turns, `at_once` rows each time.
HC_DEVICE int64 rows_of_slice(int64 rows, int64 slices, int64 at_once, int64 slice) {
  const int64 turn = slices * at_once, turns = rows / turn, rest = rows - turns * turn - slice * at_once;
  return turns * at_once + (rest <= 0 ? 0 : rest < at_once ? rest : at_once);
}

}  // namespace hindcast::device
#endif
