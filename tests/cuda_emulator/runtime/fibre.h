#pragma once
// A separate stack, which can be left in the middle of a function and resumed. All fibres run on the thread that resumes them.

#include <cstdint>

namespace hindcast::tests::cuda {

class Fibre {
 public:
  Fibre();
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Sets `body(argument)` to run at the next resume(). What ran before is abandoned; nothing is unwound.
  void start(void (*body)(void*), void* argument);
  /// Runs until it pauses or its body ends.
  void resume();
  /// Returns to the caller of resume(). Called on the fibre.
  void pause();
  bool owns(uint64_t address) const { return address >= stack_ && address < stack_ + kStack; }

 private:
  struct Jump;
  static constexpr uint64_t kStack = 64 * 1024;

  uint64_t stack_ = 0;
  uint64_t offset_ = 0;  // of the stack's start, from the top
  void* mapping_ = nullptr;
  void* own_ = nullptr;   // where to continue, on the fibre
  void* back_ = nullptr;  // and where it came from
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace hindcast::tests::cuda
