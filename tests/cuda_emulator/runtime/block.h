#pragma once
// One block of the running launch at a time.

#include <optional>
#include <vector>

#include "tests/cuda_emulator/runtime/launch.h"
#include "tests/cuda_emulator/runtime/memory.h"
#include "tests/cuda_emulator/runtime/thread.h"

namespace hindcast::tests::cuda {

class Block {
 public:
  Block(const Kernel& kernel, const LaunchShape& shape, void** arguments);

  /// The block that is running.
  static Block& current();
  /// Totals of all blocks so far.
  static Traffic& traffic();

  /// Runs the block of this number; throws KernelError.
  void run(uint64_t number);

  // The rest is called by kernels, on a thread's fibre.
  void access(uint64_t address, uint64_t bytes, AccessKind kind);
  void wait_for_block(int line);
  /// Returns the warp's result for the thread: for a shuffle the number of the lane `source`, for a vote the votes of all.
  uint64_t wait_for_warp(WarpCall call, uint32_t mask, uint64_t given, uint32_t source, int line);
  /// Ends the launch. None of its threads is resumed.
  [[noreturn]] void fail(Wrong kind, uint64_t address, int64_t element, std::string what, bool between_blocks = false);

 private:
  static void run_thread(void* block);

  void resume(uint32_t thread);
  bool run_those_ready();
  void release_barrier();
  void release_warp(uint32_t thread);
  [[noreturn]] void report_waiting();
  bool waits_with(uint32_t thread, uint32_t lane) const;
  uint32_t missing_lanes(uint32_t thread) const;
  Finding finding(Wrong kind, std::string what) const;

  Region* shared_at(uint64_t address);
  void count(const Cell& cell, AccessKind kind, uint64_t bytes) const;
  void check(Region& region, bool shared, uint64_t address, uint64_t bytes, AccessKind kind);
  std::string words(const Region& region, uint64_t bytes, AccessKind kind) const;

  const Kernel& kernel_;
  LaunchShape shape_;
  void** arguments_;
  Binding binding_;
  std::vector<Region> shared_;
  std::vector<Thread> threads_;
  std::vector<hindcast_emulator::Index> indices_;  // of the threads
  std::vector<uint32_t> warp_barriers_;            // passed by each warp
  Dim3 place_;                                     // of the block
  Moment now_;                                     // of the running thread
  std::optional<Finding> finding_;
};

}  // namespace hindcast::tests::cuda
