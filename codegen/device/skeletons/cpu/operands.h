#pragma once
// What the CPU's skeletons share. They are compiled for each kernel while a program waits for it: so they instantiate few templates.
//
// For CPUs, a body without rows has the numbers of its elements in a struct too (skeletons/body.h), as if all elements were one row:
//
//   struct Row { float s0, x1; };
//   template <class At> static void begin(Row& row, const At& at);
//   template <class At> static void element(const Row& row, const At& at);
//
// A sin, cos or tan has two forms (codegen/kernel/angles.h). A body, or a pass of it, says in kAnglesToCheck whether a skeleton must check
// angles, and has two functions for it, which return whether an angle is far:
//
//   template <class At> static int far_before(const Row& row, const At& at);  // of the angles that are the same for all elements
//   template <class At> static int far(const Row& row, const At& at);         // of one element's
//
// `element` takes the form for near angles if At::kNear.

#include "codegen/device/cpu_arguments.h"
#include "codegen/device/ops.h"
#include "codegen/device/skeletons/body.h"

namespace hindcast::device::cpu {

/// Computed: `element` computes some of these angles. Loaded: it only loads them.
enum class AnglesToCheck { None, Loaded, Computed };

// As At, LoadAt and StoreAt (packs.h, body.h), which take Clang longer.
#if defined(__clang__)
template <int kNumber, class... T>
using Nth = __type_pack_element<kNumber, T...>;
#else  // a reproducer's compiler
template <int kNumber, class... T>
using Nth = At<kNumber, Types<T...>>;
#endif
template <int kNumber, class List>
struct OneOf;
template <int kNumber, class... T>
struct OneOf<kNumber, Types<T...>> {
  using Type = Nth<kNumber, T...>;
};
template <class Body, int kLoad>
using LoadType = typename OneOf<kLoad, typename Body::Loads>::Type::Type;
template <class Body, int kStore>
using StoreOf = typename OneOf<kStore, typename Body::Stores>::Type;

/// Reads the numbers that are the same for all elements: `memory` has an address per tensor.
template <class Body>
struct AtNumbers {
  const double* scalars;
  char* const* memory;

  HC_DEVICE_MEMBER auto scalar(int number) const { return (typename Body::Compute)scalars[number]; }
  template <int kLoad>
  HC_DEVICE_MEMBER LoadType<Body, kLoad> load(Index<kLoad>) const {
    return *reinterpret_cast<const LoadType<Body, kLoad>*>(memory[kLoad]);
  }
};

/// Stores element i to the leaves of a result. A leaf has two pointers: the sum, and the term that is added to the result.
template <int kPointer, class T, int... kLeaves>
HC_DEVICE void store_to_leaves(char* const* memory, long i, T value, Indices<kLeaves...>) {
  ((reinterpret_cast<T*>(memory[kPointer + 2 * kLeaves])[i] =
        convert<T>(widen(reinterpret_cast<const T*>(memory[kPointer + 2 * kLeaves + 1])[i]) + widen(value))),
   ...);
}

/// Element i of a body's tensors.
template <class Body, bool kWritesLeaves>
struct MemoryElement {
  char* const* memory;  // by pointer
  long i;

  template <int kLoad>
  HC_DEVICE_MEMBER LoadType<Body, kLoad> load(Index<kLoad>) const {
    return reinterpret_cast<const LoadType<Body, kLoad>*>(memory[kLoad])[i];
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void store(Index<kStore>, T value) const {
    reinterpret_cast<T*>(memory[kLoads<Body> + kStore])[i] = value;
    if constexpr (kWritesLeaves && StoreOf<Body, kStore>::kLeaves != 0)
      store_to_leaves<kTensors<Body> + 2 * kFirstLeaf<Body, kStore>>(memory, i, value, Below<StoreOf<Body, kStore>::kLeaves>());
  }
};

}  // namespace hindcast::device::cpu
