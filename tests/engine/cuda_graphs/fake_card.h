#pragma once
// A fake card: tensors of the fake device, ATen's ops on the CPU, hindcast's kernels in the emulator, and CUDA graphs of both.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tests/support/fake_device.h"
#include "tests/support/fake_graph.h"

namespace hindcast::tests {

/// Call before the process's first backward.
void install_fake_card();

/// Launches of kernels whose memory addresses were updated.
uint64_t moved_launches();

/// While it lives, nothing can be recorded, for this reason.
class WithoutRecordings {
 public:
  explicit WithoutRecordings(const std::string& why);
  ~WithoutRecordings();
  WithoutRecordings(const WithoutRecordings&) = delete;
  WithoutRecordings& operator=(const WithoutRecordings&) = delete;
};

/// While it lives, the program captures a graph of its own.
class ProgramRecords {
 public:
  ProgramRecords();
  ~ProgramRecords();
  ProgramRecords(const ProgramRecords&) = delete;
  ProgramRecords& operator=(const ProgramRecords&) = delete;
};

/// While it lives, updating the address of a graph's kernel fails.
class FailingMoves {
 public:
  FailingMoves();
  ~FailingMoves();
  FailingMoves(const FailingMoves&) = delete;
  FailingMoves& operator=(const FailingMoves&) = delete;
};

/// The n-th launch from now on within captures fails.
void fail_captured_launch(int64_t n);

/// While it lives, each capture fails at its end.
class FailingCaptures {
 public:
  FailingCaptures();
  ~FailingCaptures();
  FailingCaptures(const FailingCaptures&) = delete;
  FailingCaptures& operator=(const FailingCaptures&) = delete;
};

}  // namespace hindcast::tests
