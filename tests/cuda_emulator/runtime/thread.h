#pragma once
// A CUDA thread, and what it waits for.

#include <cstdint>

#include "tests/cuda_emulator/runtime/fibre.h"

namespace hindcast::tests::cuda {

inline constexpr uint32_t kWarpSize = 32;

enum class WarpCall { Barrier, Shuffle, Vote };

struct Thread {
  enum class State { Ready, AtBarrier, InWarp, Done };

  Fibre* fibre = nullptr;
  State state = State::Ready;
  int line = 0;  // where it waits
  WarpCall call = WarpCall::Barrier;
  uint32_t mask = 0;      // of the lanes that it waits for
  uint64_t given = 0;     // its number for the others
  uint32_t source = 0;    // the lane whose number it requests in a shuffle
  uint64_t received = 0;  // that number, or the votes of all
};

}  // namespace hindcast::tests::cuda
