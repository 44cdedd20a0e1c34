#pragma once
// Atomic operations. Threads of a block run one at a time, so these only report which memory they access.

#include "qualifiers.h"

namespace hindcast_emulator {

template <class T, class Change>
HC_EMULATOR_UNCHECKED T update(T* address, Change change) {
  hindcast_emulator_calls()->atomic(address, sizeof(T));
  const T old = *address;
  *address = change(old);
  return old;
}

template <class T>
struct Itself {
  using type = T;
};
/// Lets only the pointer determine T, like CUDA's overloads.
template <class T>
using Same = typename Itself<T>::type;

}  // namespace hindcast_emulator

#define HC_ATOMIC(name, expression)                                                    \
  template <class T>                                                                   \
  __forceinline__ T name(T* address, hindcast_emulator::Same<T> value) {               \
    return hindcast_emulator::update(address, [=](T old) -> T { return expression; }); \
  }
HC_ATOMIC(atomicAdd, old + value)
HC_ATOMIC(atomicSub, old - value)
HC_ATOMIC(atomicMin, value < old ? value : old)
HC_ATOMIC(atomicMax, old < value ? value : old)
HC_ATOMIC(atomicAnd, old& value)
HC_ATOMIC(atomicOr, old | value)
HC_ATOMIC(atomicXor, old ^ value)
HC_ATOMIC(atomicExch, value)
#undef HC_ATOMIC

template <class T>
__forceinline__ T atomicCAS(T* address, hindcast_emulator::Same<T> expected, hindcast_emulator::Same<T> value) {
  return hindcast_emulator::update(address, [=](T old) -> T { return old == expected ? value : old; });
}
