#pragma once
// Elements that are contiguous in every tensor. A block has one tile of them.

#include "codegen/device/skeletons/operands.h"

#if HC_CUDA
namespace hindcast::device {

template <class Body>
using Dense = DenseArguments<kPointers<Body>, Body::kScalars>;

/// Broadcast loads have no elements here: they are read once.
template <int kVector>
struct OfDense {
  template <class Load>
  using Vectors = Vector<typename Load::Type, Load::kIsBroadcast ? 1 : kVector>;
};
template <class Body, int kVector>
using DenseVectors = typename Body::Loads::template PackOf<OfDense<kVector>::template Vectors>;

template <class Body, bool kBroadcast, int kVector>
HC_DEVICE void load_dense(char* const* pointers, int64 at, DenseVectors<Body, kVector>& vectors) {
  for_each_below<kLoads<Body>>([&](auto i) {
    using Load = LoadAt<Body, i>;
    constexpr int kLength = kBroadcast ? 1 : kVector;
    const auto* const memory = reinterpret_cast<const typename Load::Type*>(pointers[i]);
    if constexpr (Load::kIsBroadcast == kBroadcast) get<i>(vectors) = load_vector<kLength>(memory + (kBroadcast ? 0 : at));
  });
}

template <class Body, int kVector>
struct DenseElement : ScalarWords<Body> {
  const DenseVectors<Body, 1>& broadcast;
  const DenseVectors<Body, kVector>& vectors;
  ResultVectors<Body, kVector>& results;
  int j;  // in the vectors

  template <int kLoad>
  HC_DEVICE_MEMBER typename LoadAt<Body, kLoad>::Type load(Index<kLoad>) const {
    if constexpr (LoadAt<Body, kLoad>::kIsBroadcast) {
      return get<kLoad>(broadcast).get(0);
    } else {
      return get<kLoad>(vectors).get(j);
    }
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void store(Index<kStore>, T value) const {
    get<kStore>(results).set(j, value);
  }
};

/// Loads the whole tile, then computes it, then stores it. An incomplete tile goes vector by vector, an incomplete vector element by
/// element.
template <class Body, int kVector, int kItems>
HC_DEVICE void run_dense(const Dense<Body>& arguments, int64 block) {
  constexpr int kElements = kThreads * kVector * kItems;
  const int64 begin = block * kElements, count = arguments.count - begin;
  DenseVectors<Body, 1> broadcast;
  load_dense<Body, true, 1>(arguments.pointers, 0, broadcast);
  const auto load = [&](auto length, int at, auto& vectors) { load_dense<Body, false, length>(arguments.pointers, begin + at, vectors); };
  const auto store = [&](auto length, int at, const auto& results) {
    store_results<Body, length>(arguments.pointers, results,
                                [&](auto i) { return (begin + at) * int64(sizeof(typename StoreAt<Body, i>::Type)); });
  };
  const auto compute = [&](auto length, const auto& vectors, auto& results) {
#pragma unroll
    for (int j = 0; j < length; ++j) Body::element(DenseElement<Body, length>{{arguments.scalars}, broadcast, vectors, results, j});
  };
  const auto run = [&](auto length, int at) {
    DenseVectors<Body, length> vectors;
    ResultVectors<Body, length> results;
    load(length, at, vectors);
    compute(length, vectors, results);
    store(length, at, results);
  };
  if (kItems == 1 || count < kElements) {
    const int left = min(count, int64(kElements)), of_vectors = left / kVector * kVector;
#pragma unroll 1
    for (int at = threadIdx.x * kVector; at < of_vectors; at += kThreads * kVector) run(Index<kVector>(), at);
    if constexpr (kVector > 1) {
      const int at = of_vectors + threadIdx.x;
      if (at < left) run(Index<1>(), at);
    }
    return;
  }
  const auto place = [](int k) { return (k * kThreads + int(threadIdx.x)) * kVector; };
  DenseVectors<Body, kVector> vectors[kItems];
  ResultVectors<Body, kVector> results[kItems];
#pragma unroll
  for (int k = 0; k < kItems; ++k) load(Index<kVector>(), place(k), vectors[k]);
#pragma unroll
  for (int k = 0; k < kItems; ++k) compute(Index<kVector>(), vectors[k], results[k]);
#pragma unroll
  for (int k = 0; k < kItems; ++k) store(Index<kVector>(), place(k), results[k]);
}

template <class Body, int kMost>
using Sets = SetsArguments<kMost, Body::kScalars, kTensors<Body>>;

/// A block has elements of one set. All blocks search the same words for their set, which the constant cache broadcasts to all threads.
template <class Body, int kVector, int kItems, int kMost>
HC_DEVICE void run_sets(const Sets<Body, kMost>& arguments) {
  int set = 0;
  while (set + 1 < arguments.sets && blockIdx.x >= arguments.blocks_before[set + 1]) ++set;
  Dense<Body> dense;
#pragma unroll
  for (int i = 0; i < kTensors<Body>; ++i) dense.pointers[i] = arguments.pointers[set][i];
  if constexpr (Body::kScalars != 0) {
#pragma unroll
    for (int i = 0; i < Body::kScalars; ++i) dense.scalars[i] = arguments.scalars[i];
  }
  dense.count = arguments.counts[set];
  run_dense<Body, kVector, kItems>(dense, int64(blockIdx.x) - arguments.blocks_before[set]);
}

}  // namespace hindcast::device
#endif
