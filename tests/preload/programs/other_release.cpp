// Stands for a LibTorch of another release: a library with the functions that libhindcast_auto.so looks for.

#include <cstdint>

extern "C" uint64_t aoti_torch_abi_version() { return uint64_t{2} << 56 | uint64_t{7} << 48; }
extern "C" void* get_engine() asm("_ZN5torch8autograd6Engine18get_default_engineEv");
void* get_engine() {
  static int engine;
  return &engine;
}
extern "C" bool calls_its_engine() { return get_engine() != nullptr; }
