#pragma once
// An error that the emulator finds in a kernel.

#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>

namespace hindcast::tests::cuda {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
  /// The coordinates of number `i`, x first.
  Dim3 at(uint64_t i) const { return {uint32_t(i % x), uint32_t(i / x % y), uint32_t(i / x / y)}; }
  bool operator==(const Dim3&) const = default;
};

enum class Wrong {
  GlobalBounds,
  SharedBounds,
  ArrayBounds,  // of an array whose length is in the text, in shared memory or a thread's own
  Uninitialised,
  ReadAfterWrite,  // these three: races, of two unordered threads
  WriteAfterRead,
  WriteAfterWrite,
  Barrier,
  Warp,  // a shuffle, a vote or a barrier of a warp
  Misaligned,
  Launch,
};
std::string name_of(Wrong kind);
inline std::ostream& operator<<(std::ostream& out, Wrong kind) { return out << name_of(kind); }

struct Finding {
  Wrong kind = Wrong::Launch;
  std::string kernel;
  Dim3 block, thread;
  uint64_t address = 0;
  /// The index of the element in its memory or array, counted in accesses of this size; -1: none.
  int64_t element = -1;
  bool between_blocks = false;
  /// What was found and what was expected.
  std::string what;
};
std::string describe(const Finding& finding);

/// Ends a launch; nothing of the kernel runs afterwards.
class KernelError : public std::runtime_error {
 public:
  explicit KernelError(Finding finding) : std::runtime_error(describe(finding)), finding_(std::move(finding)) {}
  const Finding& finding() const { return finding_; }

 private:
  Finding finding_;
};

}  // namespace hindcast::tests::cuda
