#pragma once
// One loop over contiguous elements, which Clang vectorises: each load is dense or broadcast.

#include "codegen/device/skeletons/cpu/operands.h"

namespace hindcast::device::cpu {

/// By pointer: the address of the element of index 0. A local copy: a store of bytes may alias the caller's array of pointers, which would
/// prevent vectorisation.
template <int kCount>
struct Addresses {
  char* of[kCount];

  template <int... kPointer>
  HC_DEVICE_MEMBER void set(char* const* pointers, Indices<kPointer...>) {
    ((of[kPointer] = pointers[kPointer]), ...);
  }
};

template <class Body, bool kIsNear, bool kWritesLeaves>
struct DenseElement : MemoryElement<Body, kWritesLeaves> {
  static constexpr bool kNear = kIsNear;
  const void* products;  // of a body with a product: its elements

  HC_DEVICE_MEMBER auto product() const { return static_cast<const typename Body::Product*>(products)[this->i]; }
};

/// The loops over some elements.
template <class Body, bool kWritesLeaves>
struct DenseLoops {
  const typename Body::Row& row;
  char* const* memory;
  const void* products = nullptr;

  template <bool kNear>
  HC_DEVICE_MEMBER DenseElement<Body, kNear, kWritesLeaves> element(long i) const {
    return {{memory, i}, products};
  }

  /// Each element is read before it is written, since a result may have the memory of an operand. Nothing else that is written overlaps
  /// anything that is read.
  template <bool kNear>
  HC_DEVICE_MEMBER void run(long begin, long end) const {
#pragma clang loop vectorize(assume_safety)
    for (long i = begin; i < end; ++i) Body::element(row, element<kNear>(i));
  }
  /// Also returns whether an angle of the elements that are `ahead` is far.
  HC_DEVICE_MEMBER int run_and_look(long begin, long end, long ahead) const {
    int far = 0;
#pragma clang loop vectorize(assume_safety)
    for (long i = begin; i < end; ++i) {
      far |= Body::far(row, element<true>(i + ahead));
      Body::element(row, element<true>(i));
    }
    return far;
  }
  HC_DEVICE_MEMBER int look(long begin, long end, int far) const {
    for (long i = begin; i < end; ++i) far |= Body::far(row, element<true>(i));
    return far;
  }
};

/// Block by block. `at_block(begin)` comes before each.
template <class Body, bool kWritesLeaves, class AtBlock>
HC_DEVICE void dense_by_blocks(const DenseLoops<Body, kWritesLeaves>& loops, long count, AtBlock at_block) {
  constexpr AnglesToCheck kAngles = Body::kAnglesToCheck;
  // Short enough that non-temporal stores (kNontemporalAtOnce elements at a time) cover several blocks.
  constexpr long kLength = kAngles == AnglesToCheck::Computed ? 256 : kBlockLength;
  [[maybe_unused]] int far_before = 0, far = 0;
  if constexpr (kAngles != AnglesToCheck::None) far_before = Body::far_before(loops.row, loops.template element<true>(0));
  [[maybe_unused]] long ahead = 0;
  for (long begin = 0; begin < count; begin += kLength) {
    const long end = begin + kLength < count ? begin + kLength : count;
    at_block(begin);
    if constexpr (kAngles == AnglesToCheck::None) {
      loops.template run<false>(begin, end);
    } else if constexpr (kAngles == AnglesToCheck::Loaded) {
      if (!loops.look(begin, end, far_before)) {
        loops.template run<true>(begin, end);
      } else {
        loops.template run<false>(begin, end);
      }
    } else {
      // Computed angles depend on more memory than loaded ones. So the loop over one block also looks at the next block, whose memory is
      // then read while this block is computed. A block is checked before any of it is written.
      if (ahead == 0) far = loops.look(begin, end, far_before);
      ahead = !far && end + kLength <= count ? kLength : 0;
      if (!far) {
        far = loops.run_and_look(begin, end, ahead);
      } else {
        loops.template run<false>(begin, end);
        far = 0;
      }
    }
  }
}

template <class Body>
HC_DEVICE void run_dense(LoopArguments arguments) {
  typename Body::Row row;
  Body::begin(row, AtNumbers<Body>{arguments.scalars, arguments.pointers});
  Addresses<kTensors<Body>> addresses;
  addresses.set(arguments.pointers, Below<kTensors<Body>>());
  DenseLoops<Body, false> loops = {row, addresses.of};
  if constexpr (requires { typename Body::Product; }) {
    loops.products = arguments.pointers[kTensors<Body>];
    loops.template run<false>(0, arguments.count);
  } else if constexpr (Body::kAnglesToCheck == AnglesToCheck::None) {
    loops.template run<false>(0, arguments.count);
  } else {
    dense_by_blocks(loops, arguments.count, [](long) {});
  }
}

/// The addresses of a result and of its leaves, for a block that begins at `begin`.
template <class Body, int kStore, class Addresses, int... kLeafPointer>
HC_DEVICE void set_block(Addresses& addresses, const LeavesArguments& arguments, long begin, Indices<kLeafPointer...>) {
  constexpr int kFirst = kTensors<Body> + 2 * kFirstLeaf<Body, kStore>;
  const auto set = [&](int pointer) __attribute__((always_inline)) {
    addresses.of[pointer] = arguments.pointers[pointer] -
                            begin * arguments.is_block[pointer - kLoads<Body>] * long(sizeof(typename StoreOf<Body, kStore>::Type));
  };
  set(kLoads<Body> + kStore);
  (set(kFirst + kLeafPointer), ...);
}
template <class Body, class Addresses, int... kStore>
HC_DEVICE void set_blocks(Addresses& addresses, const LeavesArguments& arguments, long begin, Indices<kStore...>) {
  (set_block<Body, kStore>(addresses, arguments, begin, Below<2 * StoreOf<Body, kStore>::kLeaves>()), ...);
}

template <class Body>
HC_DEVICE void run_leaves(LeavesArguments arguments) {
  typename Body::Row row;
  Body::begin(row, AtNumbers<Body>{arguments.scalars, arguments.pointers});
  Addresses<kPointers<Body>> addresses;
  addresses.set(arguments.pointers, Below<kLoads<Body>>());
  dense_by_blocks(
      DenseLoops<Body, true>{row, addresses.of}, arguments.count, [&](long begin) __attribute__((always_inline)) {
        set_blocks<Body>(addresses, arguments, begin, Below<kStores<Body>>());
      });
}

}  // namespace hindcast::device::cpu
