#pragma once
// How CUDA's skeletons read scalars and write results.

#include "codegen/device/arguments.h"
#include "codegen/device/ops.h"
#include "codegen/device/skeletons/body.h"
#include "codegen/device/vectors.h"

#if HC_CUDA
extern __shared__ __align__(16) char smem[];  // as much as a launch asks for

namespace hindcast::device {

/// A branch skips the code for angles that are far from 0 (codegen/kernel/angles.h).
template <class T>
HC_DEVICE bool is_near(T angle) {
  return magnitude_of(angle) <= kNearAngle<T>;
}

/// A body's scalars, in words.
template <class Body>
struct ScalarWords {
  const uint64* words;
  HC_DEVICE_MEMBER typename Body::Real scalar(int i) const { return Scalar<typename Body::Real>::of(words[i]); }
};

/// `kVector` elements of each result.
template <int kVector>
struct OfResults {
  template <class Store>
  using Vectors = Vector<typename Store::Type, kVector>;
};
template <class Body, int kVector>
using ResultVectors = typename Body::Stores::template PackOf<OfResults<kVector>::template Vectors>;

/// Stores elements of a result, `bytes` after the tensor's first element. A result with leaves may have no memory of its own. Leaves have
/// its layout.
template <class Body, int kStore, int kVector, class T>
HC_DEVICE void store_with_leaves(char* const* pointers, const Vector<T, kVector>& values, int64 bytes) {
  constexpr int kLeaves = StoreAt<Body, kStore>::kLeaves;
  char* const memory = pointers[kLoads<Body> + kStore];
  if (kLeaves == 0 || memory != nullptr) store_vector<kVector>(reinterpret_cast<T*>(memory + bytes), values);
  for_each_below<kLeaves>([&](auto leaf) {
    constexpr int kSum = kTensors<Body> + 2 * (kFirstLeaf<Body, kStore> + leaf);
    store_to_leaf<kVector>(moved<T>(pointers[kSum], bytes), moved<T>(pointers[kSum + 1], bytes), values);
  });
}
/// `bytes_of(Index<store>())`: see store_with_leaves().
template <class Body, int kVector, class BytesOf>
HC_DEVICE void store_results(char* const* pointers, const ResultVectors<Body, kVector>& results, BytesOf bytes_of) {
  for_each_below<kStores<Body>>([&](auto i) { store_with_leaves<Body, i>(pointers, get<i>(results), bytes_of(i)); });
}

}  // namespace hindcast::device
#endif
