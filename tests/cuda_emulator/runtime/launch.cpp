#include "tests/cuda_emulator/runtime/launch.h"

#include <mutex>
#include <utility>

#include "tests/cuda_emulator/runtime/block.h"

namespace hindcast::tests::cuda {
namespace {

uint64_t blocks_at_ends = UINT64_MAX;

/// The limits of today's cards.
void check(const Kernel& kernel, const LaunchShape& shape) {
  constexpr uint32_t kMostThreads = 1024, kMostBlocksInYAndZ = 65535;
  std::string what;
  if (shape.grid.count() == 0 || shape.block.count() == 0) what = "expected at least one block and one thread";
  if (shape.block.count() > kMostThreads || shape.block.z > 64) what = "expected at most 1024 threads in a block, 64 in z";
  if (shape.grid.y > kMostBlocksInYAndZ || shape.grid.z > kMostBlocksInYAndZ) what = "expected at most 65535 blocks in y and z";
  if (shape.shared_bytes > hindcast_emulator::kMostDynamicShared) what = "expected at most 227 KiB of dynamic shared memory";
  if (what.empty()) return;
  throw KernelError({.kind = Wrong::Launch, .kernel = kernel.name, .block = shape.grid, .thread = shape.block, .what = what});
}

}  // namespace

WithBlocksAtEnds::WithBlocksAtEnds(uint64_t blocks) { blocks_at_ends = blocks; }
WithBlocksAtEnds::~WithBlocksAtEnds() { blocks_at_ends = UINT64_MAX; }

Traffic take_traffic() { return std::exchange(Block::traffic(), {}); }

void launch(const Kernel& kernel, const LaunchShape& shape, void** arguments) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  check(kernel, shape);
  Block block(kernel, shape, arguments);
  const uint64_t count = shape.grid.count();
  for (uint64_t number = 0; number < count; ++number) {
    if (number >= blocks_at_ends && count - number > blocks_at_ends) number = count - blocks_at_ends;
    block.run(number);
  }
}

}  // namespace hindcast::tests::cuda
