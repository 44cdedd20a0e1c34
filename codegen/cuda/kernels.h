#pragma once
// Kernels for CUDA: the machine's compiler makes them, NVRTC or that of an emulator.
//
// A body's text has up to nine entry points, and a compiler takes hundreds of milliseconds for them all. So a kernel begins with some
// (first_entries_of() in source.h). Each other one is compiled when a call first wants it, as an object of its own, beside the calls.

#include "codegen/cuda/entry.h"
#include "codegen/cuda/machine.h"
#include "codegen/cuda/schedule.h"
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

/// Makes objects of texts for a machine.
class MachineCompiler final : public KernelCompiler {
 public:
  explicit MachineCompiler(const Machine& machine) : machine_(machine) {}

  std::string_view identity() const override { return machine_.identity(); }
  std::string compile(std::string_view text) const override { return machine_.compile(text); }

 private:
  const Machine& machine_;
};

/// The machine code of one body. Safe from many threads.
class CudaKernel final : public Kernel, public std::enable_shared_from_this<CudaKernel> {
 public:
  /// `later`: as Backend::kernel() has it.
  CudaKernel(const Machine& machine, const Body& body, RunLater later)
      : machine_(machine), body_(body), later_(later), asked_by_(AskedBy::now()) {}

  /// Compiles those of the entry points that it lacks, as one text. Throws what the compiler does.
  void compile(Entries entries) const;

  /// Null: it is not compiled.
  void* function(Entry entry) const { return loaded_[static_cast<size_t>(entry)].function.load(std::memory_order_acquire); }
  /// The module of the entry point's function(), which is there.
  const Module* module(Entry entry) const { return loaded_[static_cast<size_t>(entry)].module; }
  /// 0 for entry points that are not compiled.
  Registers registers() const;
  /// Whether a launch can have it. If not, it will be compiled beside the calls. Waits for nothing.
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
  const std::string asked_by_;  // first
  // What it has grows while calls hold it.
  struct Loaded {
    std::atomic<void*> function = nullptr;  // set last
    const Module* module = nullptr;
    int registers = 0;
  };
  mutable std::array<Loaded, kEntries> loaded_ = {};
  mutable std::array<std::atomic<bool>, kEntries> asked_ = {};
  mutable std::atomic<size_t> bytes_ = 0;  // of the objects
  mutable std::mutex compiling_;           // locked inside of the compilers' gate only, so that no fork finds it held
  mutable std::vector<std::shared_ptr<const Module>> modules_;
};

/// As Backend::kernel().
std::shared_ptr<const CudaKernel> kernel_of(const Body& body, RunLater later, std::string& why_not);

/// Some entry point is not there yet that a call asked for.
bool compiles_for_calls();

/// Of a body's text.
Shape shape_of(const Body& body);

}  // namespace hindcast::codegen::cuda
