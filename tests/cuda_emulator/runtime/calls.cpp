#include "tests/cuda_emulator/runtime/calls.h"

#include "tests/cuda_emulator/runtime/block.h"

namespace hindcast::tests::cuda {
namespace {

uint64_t number_of(const volatile void* address) { return reinterpret_cast<uint64_t>(address); }
std::string at(unsigned line) { return "line " + std::to_string(line); }

}  // namespace

const hindcast_emulator::Calls& calls_for_kernels() {
  static const hindcast_emulator::Calls calls = {
      .read = [](const volatile void* address,
                 unsigned long bytes) { Block::current().access(number_of(address), bytes, AccessKind::Read); },
      .write = [](const volatile void* address,
                  unsigned long bytes) { Block::current().access(number_of(address), bytes, AccessKind::Write); },
      .atomic = [](const volatile void* address,
                   unsigned long bytes) { Block::current().access(number_of(address), bytes, AccessKind::Atomic); },
      .barrier = [](int line) { Block::current().wait_for_block(line); },
      .sync_warp = [](unsigned mask, int line) { Block::current().wait_for_warp(WarpCall::Barrier, mask, 0, 0, line); },
      .shuffle = [](unsigned mask, unsigned long long value, int source, int line) -> unsigned long long {
        return Block::current().wait_for_warp(WarpCall::Shuffle, mask, value, source, line);
      },
      .ballot = [](unsigned mask, bool predicate, int line) -> unsigned {
        return static_cast<unsigned>(Block::current().wait_for_warp(WarpCall::Vote, mask, predicate, 0, line));
      },
      .misaligned =
          [](const void* address, unsigned long alignment, unsigned line) {
            Block::current().fail(Wrong::Misaligned, number_of(address), -1,
                                  at(line) + " expected a multiple of " + std::to_string(alignment));
          },
      .outside_object = [](const void* address,
                           unsigned line) { Block::current().fail(Wrong::ArrayBounds, number_of(address), -1, at(line)); },
      .outside_array = [](unsigned long index, unsigned line) { Block::current().fail(Wrong::ArrayBounds, 0, int64_t(index), at(line)); },
  };
  return calls;
}

}  // namespace hindcast::tests::cuda
