#pragma once
// NVRTC, NVIDIA's runtime compiler: kernel text to machine code. It needs neither a card nor a driver, and hindcast is built
// without any header or library of CUDA.
//
// The library is opened by the first get(). It is looked for beside the LibTorch in use, in pip's layout (nvidia/cu13/lib,
// nvidia/cuda_nvrtc/lib) and in that of a LibTorch archive (its own lib folder); then by the dynamic linker; then in
// /usr/local/cuda/lib64. If the environment variable HINDCAST_NVRTC is not empty, only the file it names is tried instead.
//
// All functions may be called on any thread. A fork waits for running compiles (base/fork_gate.h), usually hundreds of
// milliseconds; a child may compile. Process exit waits for them too, because NVRTC then destroys its data. A compile that
// begins after that throws Unsupported.

#include "base/check.h"
#include "codegen/kernel/device_library.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hindcast::codegen::cuda {

struct NvrtcFunctions;

/// NVRTC rejected a text. This is a bug of hindcast or NVRTC, but the caller can fall back, as for any Unsupported. The message has NVRTC's
/// log and the options.
class NvrtcError : public Unsupported {
 public:
  NvrtcError(const std::string& text, std::string log) : Unsupported(text), log_(std::move(log)) {}
  const std::string& log() const { return log_; }

 private:
  std::string log_;
};

/// Machine code for one architecture (a CUBIN), and NVRTC's log.
struct MachineCode {
  std::string object;
  std::string log;
};

class Nvrtc {
 public:
  /// The process's NVRTC, which is never destroyed. nullptr if it cannot be loaded; `why_not` is then a sentence that says what failed and
  /// what to do.
  static const Nvrtc* get(std::string* why_not);
  /// For tests: NVRTC from the first of `paths` that can be opened.
  static std::unique_ptr<const Nvrtc> open(std::span<const std::string> paths, std::string* why_not);

  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  /// Identifies the build: two builds of one version may generate different code.
  const std::string& identity() const { return identity_; }
  /// The supported architectures, ascending; 90 is sm_90.
  const std::vector<int>& architectures() const { return architectures_; }

  /// `headers`: all files that the text and the headers may include. Throws NvrtcError.
  MachineCode compile(std::string_view text, std::span<const DeviceHeader> headers, std::span<const std::string> options) const;

 private:
  Nvrtc();
  void describe();

  const std::unique_ptr<NvrtcFunctions> functions_;
  std::string identity_;
  std::vector<int> architectures_;
};

/// The compiler options for kernels.
std::vector<std::string> kernel_options(int architecture);

/// Everything that an object's bytes depend on besides its text and the device library: NVRTC's build and the options.
std::string object_identity(const Nvrtc& nvrtc, std::span<const std::string> options);

}  // namespace hindcast::codegen::cuda
