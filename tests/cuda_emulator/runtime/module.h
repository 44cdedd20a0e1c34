#pragma once
// A shared object with kernels, loaded.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_emulator/runtime/finding.h"
#include "tests/cuda_emulator/text/calls.h"

namespace hindcast::tests::cuda {

/// Memory from `begin` to `end`.
struct Span {
  uint64_t begin = 0, end = 0;
  bool holds(uint64_t address) const { return address >= begin && address < end; }
};

struct SharedArray {
  std::string name;
  uint64_t offset;  // in the thread's copy of the shared object's thread_local variables
  uint64_t bytes;
};

class Module;

struct Kernel {
  const Module* module = nullptr;
  std::string name;
  void (*call)(void** arguments) = nullptr;
};

/// A module as one thread of the host sees it: shared memory lies in variables of that thread.
struct Binding {
  hindcast_emulator::Variables variables;
  Span shared_memory;
  /// The dynamic one, smem, has its largest possible size.
  std::vector<std::pair<std::string, Span>> shared_arrays;
};

class Module {
 public:
  Module(const std::string& path, const std::vector<std::string>& kernels);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Throws if there is none of this name.
  const Kernel& kernel(const std::string& name) const;
  /// For this thread.
  Binding bind() const;
  /// Code and constants.
  Span image() const { return image_; }

 private:
  using Bind = hindcast_emulator::Variables(const hindcast_emulator::Calls*);

  void* library_;
  Bind* bind_;
  std::map<std::string, Kernel> kernels_;
  std::vector<SharedArray> shared_;
  uint64_t shared_bytes_ = 0;  // of all arrays together, with padding
  Span image_;
};

}  // namespace hindcast::tests::cuda
