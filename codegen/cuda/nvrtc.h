#pragma once
// NVRTC, NVIDIA's compiler for kernels: text to machine code. It needs neither a card nor a driver, and hindcast is built
// without any header or library of CUDA.
//
// The library is opened by the first get(). It is looked for beside the LibTorch in use, as pip lays both out (nvidia/cu13/lib,
// nvidia/cuda_nvrtc/lib) and as an archive of LibTorch does (its own lib folder); then where the dynamic linker looks; then in
// /usr/local/cuda/lib64. The environment's HINDCAST_NVRTC, if not empty, names the one file to look at instead.
//
// All functions may be called on any thread. A fork waits for the compiles under way (base/fork_gate.h), hundreds of milliseconds
// as a rule; a child may compile. The exit of the process waits for them too: NVRTC destroys its data then. A compile that begins behind
// that throws Unsupported.

#include "codegen/kernel/device_library.h"
#include "base/check.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hindcast::codegen::cuda {

struct NvrtcFunctions;

/// NVRTC refused a text, which is our bug or its own, but the caller has another way, as with all that is Unsupported. The text
/// holds NVRTC's log and the options.
class NvrtcError : public Unsupported {
 public:
  NvrtcError(const std::string& text, std::string log) : Unsupported(text), log_(std::move(log)) {}
  const std::string& log() const { return log_; }

 private:
  std::string log_;
};

/// Machine code of one architecture (a CUBIN), and what NVRTC says of it.
struct MachineCode {
  std::string object;
  std::string log;
};

class Nvrtc {
 public:
  /// The process's one, which lives until the process ends. Null when there is none; then `why_not` is a sentence that says what
  /// failed and what to do.
  static const Nvrtc* get(std::string* why_not);
  /// The same from the first of `paths` that can be opened, for tests.
  static std::unique_ptr<const Nvrtc> open(std::span<const std::string> paths, std::string* why_not);

  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  /// Which build it is: two builds of one version may write other code.
  const std::string& identity() const { return identity_; }
  /// Those that it writes code for, ascending; 90 is sm_90.
  const std::vector<int>& architectures() const { return architectures_; }

  /// `headers` are all that the text and they themselves may include. Throws NvrtcError.
  MachineCode compile(std::string_view text, std::span<const DeviceHeader> headers, std::span<const std::string> options) const;

 private:
  Nvrtc();
  void describe();

  const std::unique_ptr<NvrtcFunctions> functions_;
  std::string identity_;
  std::vector<int> architectures_;
};

/// What kernels are compiled with.
std::vector<std::string> kernel_options(int architecture);

/// What an object's bytes depend on besides its text and the device library: NVRTC's build and the options.
std::string object_identity(const Nvrtc& nvrtc, std::span<const std::string> options);

}  // namespace hindcast::codegen::cuda
