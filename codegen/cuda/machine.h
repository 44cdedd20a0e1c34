#pragma once
// What the kernels of this backend are compiled for, and run by: a card behind NVIDIA's driver (driver.h), or what a test installs in its
// place. Nothing else in this folder speaks to a driver.

#include "codegen/kernel/recording.h"

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace hindcast::codegen {
class CostModel;
}

namespace hindcast::codegen::cuda {

/// What schedules reckon with.
struct Limits {
  int multiprocessors = 132;
  int threads_of_multiprocessor = 2048;  // that it holds at a time
  int threads_of_block = 1024;
  int64_t shared_bytes = 48 << 10;        // of a block, without asking for more
  int64_t most_shared_bytes = 227 << 10;  // of a block that asks
  int64_t registers_of_multiprocessor = 1 << 16;
  int64_t short_indices = int64_t{1} << 31;  // elements of a nest: as many and more are counted in 64 bits
};

struct Dim {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim&) const = default;
};

/// Compiled kernels, loaded.
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  /// An entry point, for Launch. Throws where there is none of this name.
  virtual void* function(const char* name) const = 0;
  /// Registers per thread of an entry point, as function() returned it; 0 if unknown.
  virtual int registers(void* /*function*/) const { return 0; }
  /// Its code stays loaded until the process ends, even if nobody holds it any more.
  virtual void keep() const {}

 protected:
  Module() = default;
};

/// Memory of a tensor that a kernel may touch.
struct Memory {
  const void* begin = nullptr;
  int64_t bytes = 0;
  bool has_values = false;  // it may be read
};

struct Launch {
  void* function = nullptr;
  const Module* module = nullptr;  // that the function is of; null: one that nobody unloads
  Dim grid, block;
  uint32_t shared_bytes = 0;  // of dynamic shared memory
  /// Every kernel has one parameter, a struct.
  const void* argument = nullptr;
  size_t argument_bytes = 0;
  c10::ArrayRef<uint16_t> pointers = {};  // words of 8 bytes of the argument that are addresses
  bool leads_outside = false;             // some of them lie outside of the memory that they lead to
  bool is_of_sets = false;                // of run_foreach(), whose scalars are other ones in each step
  c10::Device device = c10::kCPU;         // on whose current stream it runs
  c10::ArrayRef<Memory> memory = {};      // where the machine wants_memory(): all that the kernel may touch
};

/// Safe from many threads.
class Machine {
 public:
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Of the tensors that its kernels are given.
  virtual c10::DeviceType device() const = 0;
  virtual const Limits& limits() const = 0;
  /// All besides the text and the device library that an object's bytes depend on: compiler, version, architecture, flags.
  virtual std::string_view identity() const = 0;
  /// An object's bytes. Throws with the compiler's log.
  virtual std::string compile(std::string_view text) const = 0;
  /// `object`: what compile() gave, in this process or another. Throws for bytes that are no such object.
  virtual std::shared_ptr<const Module> load(std::string_view object) const = 0;
  /// Returns before the kernel has run. Throws what the driver says.
  virtual void launch(const Launch& launch) const = 0;
  /// `to`: 8 bytes of the device's memory, at a multiple of 8, that have `value` for what its current stream is given from now on. False:
  /// nothing was written.
  virtual bool write(c10::Device /*device*/, void* /*to*/, uint64_t /*value*/) const { return false; }
  /// Launch::memory, in this thread now: to check it, or to know later what lies where.
  virtual bool wants_memory() const { return false; }
  /// As Backend has them.
  virtual std::string why_not_recorded(c10::Device device) const;
  virtual std::optional<bool> is_captured(c10::Device /*device*/) const { return std::nullopt; }
  virtual std::unique_ptr<Recording> record(c10::Device device, c10::function_ref<void()> give) const;
  /// Null: what pays on a card (cost_model.h). A test's machine on the CPU may want the groups of the backend that it stands in for.
  virtual const CostModel* costs() const { return nullptr; }
  /// Empty: kernels run on this device. Else why not, as where cards are of several generations.
  virtual std::string why_not_on(c10::Device /*device*/) const { return {}; }

 protected:
  Machine() = default;
};

/// What was installed, else the card. Null without either, and then why.
const Machine* machine(std::string* why_not = nullptr);

/// For tests: `machine`, which lives until the process ends, stands in for the card, and takes the tensors of its device() from the
/// backend that has them. Before anything asks for a backend.
void install_machine(const Machine& machine);
/// Of install_machine(); null: none.
const Machine* installed_machine();

}  // namespace hindcast::codegen::cuda
