#pragma once
// What a kernel's shared object and the emulator know of each other. Read by kernels too, so it includes nothing.

namespace hindcast_emulator {

struct Index {
  unsigned x, y, z;
};

/// What the emulator does for kernels. Each may leave its caller for ever: an error stops the launch.
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

/// What the emulator writes in the shared object before a thread goes on.
struct Variables {
  Index* thread_index;
  Index* block_index;
  Index* block_size;
  Index* grid_size;
  /// Dynamic shared memory of the thread that asks.
  char* dynamic_shared;
};

/// The most dynamic shared memory that a block of today's cards can have.
inline constexpr unsigned kMostDynamicShared = 227 * 1024;

}  // namespace hindcast_emulator
