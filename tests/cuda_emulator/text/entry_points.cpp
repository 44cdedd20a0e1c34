// Linked into each kernel's shared object: the functions that GCC calls at each load and store (-fsanitize=thread) and at a failed check
// (-fsanitize=alignment,bounds,object-size), which forward to the emulator. No sanitizer's own library is linked.

#include "calls.h"

using hindcast_emulator::Calls;
using hindcast_emulator::Index;
using hindcast_emulator::kMostDynamicShared;
using hindcast_emulator::Variables;

namespace {
Calls calls;
}

extern "C" {

Index threadIdx, blockIdx, blockDim, gridDim;
// One name for all dynamic shared memory.
alignas(1024) thread_local char smem[kMostDynamicShared];

__attribute__((visibility("default"))) Variables hindcast_emulator_bind(const Calls* emulator) {
  calls = *emulator;
  return {&threadIdx, &blockIdx, &blockDim, &gridDim, smem};
}
const Calls* hindcast_emulator_calls() { return &calls; }

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define HC_ACCESSES(bytes)                                                           \
  void __tsan_read##bytes(void* address) { calls.read(address, bytes); }             \
  void __tsan_write##bytes(void* address) { calls.write(address, bytes); }           \
  void __tsan_unaligned_read##bytes(void* address) { calls.read(address, bytes); }   \
  void __tsan_unaligned_write##bytes(void* address) { calls.write(address, bytes); } \
  void __tsan_volatile_read##bytes(void* address) { calls.read(address, bytes); }    \
  void __tsan_volatile_write##bytes(void* address) { calls.write(address, bytes); }
HC_ACCESSES(1)
HC_ACCESSES(2)
HC_ACCESSES(4)
HC_ACCESSES(8)
HC_ACCESSES(16)
#undef HC_ACCESSES

void __tsan_read_range(void* address, unsigned long bytes) { calls.read(address, bytes); }
void __tsan_write_range(void* address, unsigned long bytes) { calls.write(address, bytes); }

// The first fields of GCC's data about a failed check.
struct Place {
  const char* file;
  unsigned line, column;
};
struct TypeMismatch {
  Place place;
  const void* type;
  unsigned char log_alignment, access;
};
struct OutOfBounds {
  Place place;
  const void *array, *index;
};

// One handler for two checks: -fsanitize=object-size gives an alignment of one byte.
void __ubsan_handle_type_mismatch_v1_abort(const TypeMismatch* data, const void* address) {
  const unsigned long alignment = 1UL << data->log_alignment;
  if (reinterpret_cast<unsigned long>(address) % alignment != 0) {
    calls.misaligned(address, alignment, data->place.line);
  } else {
    calls.outside_object(address, data->place.line);
  }
}
void __ubsan_handle_out_of_bounds_abort(const OutOfBounds* data, unsigned long index) { calls.outside_array(index, data->place.line); }
}
