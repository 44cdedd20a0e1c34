#pragma once
// Kernels for CUDA, compiled by the machine's compiler: NVRTC, or an emulator's.
//
// A body's text has up to nine entry points, and compiling all of them takes hundreds of milliseconds. So a kernel begins with a few
// (first_entries_of() in source.h). The others are compiled in the background, each as an object of its own, when a call first wants them.

#include "codegen/cuda/entry.h"
#include "codegen/cuda/launch_config.h"
#include "codegen/cuda/machine.h"
#include "codegen/fuse/body.h"
#include "codegen/kernel/kernel.h"
#include "codegen/kernel/kernel_object.h"
#include "codegen/kernel/later.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hindcast::codegen::cuda {

/// The compiler of a machine.
class MachineCompiler final : public KernelCompiler {
 public:
  explicit MachineCompiler(const Machine& machine) : machine_(machine) {}

  std::string_view identity() const override { return machine_.identity(); }
  std::string compile(std::string_view text) const override { return machine_.compile(text); }

 private:
  const Machine& machine_;
};

/// The machine code of one body. Thread-safe.
class CudaKernel final : public Kernel, public std::enable_shared_from_this<CudaKernel> {
 public:
  /// `later`: as in Backend::kernel().
  CudaKernel(const Machine& machine, const Body& body, RunLater later)
      : machine_(machine), body_(body), later_(later), asked_by_(AskedBy::now()) {}

  /// Compiles those of the entry points that are missing, as one text. Throws what the compiler throws.
  void compile(Entries entries) const;

  /// nullptr if the entry point is not compiled.
  void* function(Entry entry) const { return loaded_[static_cast<size_t>(entry)].function.load(std::memory_order_acquire); }
  /// The module of the entry point, which must be compiled.
  const Module* module(Entry entry) const { return loaded_[static_cast<size_t>(entry)].module; }
  /// Registers per thread; 0 for entry points that are not compiled.
  Registers registers() const;
  /// Whether the entry point is compiled. If not, requests its compilation in the background. Never blocks.
  bool has_or_asks_for(Entry entry) const {
    if (function(entry) != nullptr) [[likely]]
      return true;
    ask_for(entry);
    return false;
  }

  size_t footprint_of_one(long holders) const override;

 private:
  void ask_for(Entry entry) const;
  void load(std::string_view object, Entries entries) const;

  const Machine& machine_;
  const Body body_;
  const RunLater later_;
  const std::string asked_by_;  // AskedBy::now() of the first caller
  // Entry points are added while calls use the kernel.
  struct Loaded {
    std::atomic<void*> function = nullptr;  // set after the other fields
    const Module* module = nullptr;
    int registers = 0;
  };
  mutable std::array<Loaded, kEntries> loaded_ = {};
  mutable std::array<std::atomic<bool>, kEntries> asked_ = {};
  mutable std::atomic<size_t> bytes_ = 0;  // of the objects
  mutable std::mutex compiling_;           // locked only inside the compilers' fork gate, so that it is free at a fork
  mutable std::vector<std::shared_ptr<const Module>> modules_;
};

/// As Backend::kernel().
std::shared_ptr<const CudaKernel> kernel_of(const Body& body, RunLater later, std::string& why_not);

/// Whether some entry point that a call requested is not compiled yet.
bool compiles_for_calls();

/// The parameters with which a body's text is generated.
Shape shape_of(const Body& body);

}  // namespace hindcast::codegen::cuda
