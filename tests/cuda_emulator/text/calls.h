#pragma once
// The interface between a kernel's shared object and the emulator. Kernels include it too, so it includes nothing.

namespace hindcast_emulator {

struct Index {
  unsigned x, y, z;
};

/// The emulator's functions for kernels. None needs to return: an error stops the launch.
struct Calls {
  void (*read)(const volatile void* address, unsigned long bytes);
  void (*write)(const volatile void* address, unsigned long bytes);
  void (*atomic)(const volatile void* address, unsigned long bytes);
  void (*barrier)(int line);
  void (*sync_warp)(unsigned mask, int line);
  unsigned long long (*shuffle)(unsigned mask, unsigned long long value, int source, int line);
  unsigned (*ballot)(unsigned mask, bool predicate, int line);
  void (*misaligned)(const void* address, unsigned long alignment, unsigned line);
  void (*outside_object)(const void* address, unsigned line);
  void (*outside_array)(unsigned long index, unsigned line);
};

/// Variables of the shared object that the emulator sets before it resumes a thread.
struct Variables {
  Index* thread_index;
  Index* block_index;
  Index* block_size;
  Index* grid_size;
  /// Dynamic shared memory of the calling thread.
  char* dynamic_shared;
};

/// The most dynamic shared memory that a block of today's cards can have.
inline constexpr unsigned kMostDynamicShared = 227 * 1024;

}  // namespace hindcast_emulator
