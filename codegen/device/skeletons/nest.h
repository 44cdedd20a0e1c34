#pragma once
// Elements of strided tensors: loops around loops, whose strides are arguments. By vectors, where the innermost loop is contiguous or
// broadcast in each tensor; else element by element.

#include "codegen/device/skeletons/operands.h"

#if HC_CUDA
namespace hindcast::device {

template <class Body>
using Nest = NestArguments<kPointers<Body>, Body::kScalars, kTensors<Body>, kLoads<Body>>;

/// A piece's offsets in bytes from each tensor's first element.
template <int kTensors>
struct Offsets {
  int64 to[kTensors] = {};

  template <class Tensor>
  HC_DEVICE_MEMBER void step(const Tensor* tensors, int64 loop, int64 index) {
#pragma unroll
    for (int i = 0; i < kTensors; ++i) to[i] += index * tensors[i].strides[loop];
  }
};

/// Calls `visit(loop, index)` for each loop of the launch, innermost first, with the loop's index at the piece. Not unrolled, unless
/// kUnrolled: most nests have fewer loops than NVRTC would unroll for.
template <bool kUnrolled = false, class Number, class Launch, class Visit>
HC_DEVICE void for_each_loop(Number piece, const Launch& launch, Visit visit) {
  Number rest = piece;
  const auto step = [&](int loop) {
    const Number before = divide(rest, launch.sizes[loop]);
    visit(loop, int64(rest) - int64(before) * launch.sizes[loop].divisor);
    rest = before;
  };
  if constexpr (kUnrolled) {
    for (int loop = launch.loops - 1; loop >= 0; --loop) step(loop);
  } else {
#pragma unroll 1
    for (int loop = launch.loops - 1; loop >= 0; --loop) step(loop);
  }
}

template <int kVector>
struct OfNest {
  template <class Load>
  struct Choose {
    using Type = Vector<typename Load::Type, Load::kIsBroadcast ? 1 : kVector>;
  };
  template <class T>
  struct Choose<device::Load<T, Along::Counts>> {
    using Type = Counters<kVector>;
  };
  template <class Load>
  using Vectors = typename Choose<Load>::Type;
};
template <class Body, int kVector>
using NestVectors = typename Body::Loads::template PackOf<OfNest<kVector>::template Vectors>;

template <class Body, int kVector>
struct NestElement : ScalarWords<Body> {
  const NestVectors<Body, kVector>& vectors;
  ResultVectors<Body, kVector>& results;
  int j;  // in the vectors

  template <int kLoad>
  HC_DEVICE_MEMBER typename LoadAt<Body, kLoad>::Type load(Index<kLoad>) const {
    return get<kLoad>(vectors).get(LoadAt<Body, kLoad>::kIsBroadcast ? 0 : j);
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void store(Index<kStore>, T value) const {
    get<kStore>(results).set(j, value);
  }
};

/// A thread has several vectors in one column: their address is computed once, and their loads are in flight together.
template <class Body, int kVector, int kItems>
HC_DEVICE void run_nest(const Nest<Body>& arguments) {
  const uint32 piece = blockIdx.x * kThreads + threadIdx.x;
  if (piece >= arguments.pieces) return;
  Offsets<kTensors<Body>> offsets;
  for_each_loop(piece, static_cast<const NestLaunch&>(arguments),
                [&](int loop, int64 index) { offsets.step(arguments.tensors, loop, index); });
  const auto bytes = [&](int tensor, int k) { return offsets.to[tensor] + k * arguments.tensors[tensor].item_stride; };
  NestVectors<Body, kVector> vectors[kItems];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    if (k >= arguments.items) break;
    for_each_below<kLoads<Body>>([&](auto i) {
      using Load = LoadAt<Body, i>;
      constexpr int kLength = Load::kIsBroadcast ? 1 : kVector;
      const auto* const from = reinterpret_cast<const typename Load::Type*>(arguments.pointers[i] + bytes(i, k));
      if constexpr (Load::kCounts) {
        get<i>(vectors[k]) = load_counters<kVector>(from);
      } else {
        get<i>(vectors[k]) = load_vector<kLength>(from);
      }
    });
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    if (k >= arguments.items) break;
    ResultVectors<Body, kVector> results;
#pragma unroll
    for (int j = 0; j < kVector; ++j) Body::element(NestElement<Body, kVector>{{arguments.scalars}, vectors[k], results, j});
    store_results<Body, kVector>(arguments.pointers, results, [&](auto i) { return bytes(kLoads<Body> + i, k); });
  }
}

/// A thread's elements are kThreads apart. All loads come first, so that they are in flight together.
template <class Body, class Number, int kItems>
HC_DEVICE void run_nest_each(const Nest<Body>& arguments) {
  const Number first = Number(blockIdx.x) * (kThreads * kItems) + threadIdx.x;
  NestVectors<Body, 1> vectors[kItems];
  int64 places[kItems][kStores<Body>];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const Number piece = first + k * kThreads;
    if (piece >= arguments.pieces) continue;
    Offsets<kTensors<Body>> offsets;
    bool is_there[kAtLeastOne<kLoads<Body>>];
#pragma unroll
    for (int i = 0; i < kLoads<Body>; ++i) is_there[i] = true;
    for_each_loop(piece, static_cast<const NestLaunch&>(arguments), [&](int loop, int64 index) {
      offsets.step(arguments.tensors, loop, index);
      if (!arguments.is_padded) return;
#pragma unroll
      for (int i = 0; i < kLoads<Body>; ++i) {
        const NestSpans& span = arguments.spans[i];
        is_there[i] &= span.first[loop] <= index && index < span.end[loop];
      }
    });
    for_each_below<kLoads<Body>>([&](auto i) {
      using T = typename LoadAt<Body, i>::Type;
      const auto* const from = reinterpret_cast<const T*>(arguments.pointers[i] + offsets.to[i]);
      if constexpr (LoadAt<Body, i>::kCounts) {
        get<i>(vectors[k]).first = is_there[i] ? *from : T();
      } else {
        get<i>(vectors[k]).set(0, is_there[i] ? *from : T());
      }
    });
#pragma unroll
    for (int i = 0; i < kStores<Body>; ++i) places[k][i] = offsets.to[kLoads<Body> + i];
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const Number piece = first + k * kThreads;
    if (piece >= arguments.pieces) continue;
    ResultVectors<Body, 1> results;
    Body::element(NestElement<Body, 1>{{arguments.scalars}, vectors[k], results, 0});
    store_results<Body, 1>(arguments.pointers, results, [&](auto i) { return places[k][i]; });
  }
}

}  // namespace hindcast::device
#endif
