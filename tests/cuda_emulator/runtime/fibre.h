#pragma once
// A stack of its own to run on, that can be left in the middle of a function and gone back to. All fibres run on the thread that resumes
// them.

#include <cstdint>

namespace hindcast::tests::cuda {

class Fibre {
 public:
  Fibre();
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// To run `body(argument)` at the next resume(). What ran before is forgotten where it stands; nothing is unwound.
  void start(void (*body)(void*), void* argument);
  /// Until it pauses or its body ends.
  void resume();
  /// Back to who resumed it. Called on the fibre.
  void pause();
  bool owns(uint64_t address) const { return address >= stack_ && address < stack_ + kStack; }

 private:
  struct Jump;
  static constexpr uint64_t kStack = 64 * 1024;

  uint64_t stack_ = 0;
  uint64_t offset_ = 0;  // of where it begins, from the top
  void* mapping_ = nullptr;
  void* own_ = nullptr;   // where to go on, on the fibre
  void* back_ = nullptr;  // and where it came from
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace hindcast::tests::cuda
