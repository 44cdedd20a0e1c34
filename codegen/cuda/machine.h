#pragma once
// The machine that this backend's kernels are compiled for and run on: a card behind NVIDIA's driver (driver.h), or an emulator that a test
// installs. The rest of this folder does not call a driver.

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

/// The hardware limits that schedules depend on. The defaults are those of an H100.
struct Limits {
  int multiprocessors = 132;
  int threads_of_multiprocessor = 2048;  // resident at a time
  int threads_of_block = 1024;
  int64_t shared_bytes = 48 << 10;        // per block, by default
  int64_t most_shared_bytes = 227 << 10;  // per block, if requested
  int64_t registers_of_multiprocessor = 1 << 16;
  int64_t short_indices = int64_t{1} << 31;  // a nest with this many elements or more has 64-bit indices
};

struct Dim {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim&) const = default;
};

/// Loaded machine code of kernels.
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  /// An entry point, for Launch. Throws if the module has no entry point of this name.
  virtual void* function(const char* name) const = 0;
  /// Registers per thread of an entry point, as function() returned it; 0 if unknown.
  virtual int registers(void* /*function*/) const { return 0; }
  /// Keeps the code loaded until the process ends, even if the module is destroyed.
  virtual void keep() const {}

 protected:
  Module() = default;
};

/// Memory of a tensor that a kernel may access.
struct Memory {
  const void* begin = nullptr;
  int64_t bytes = 0;
  bool has_values = false;  // initialised, so it may be read
};

struct Launch {
  void* function = nullptr;
  const Module* module = nullptr;  // the function's module; nullptr: one that is never unloaded
  Dim grid, block;
  uint32_t shared_bytes = 0;  // dynamic shared memory
  /// Every kernel has one parameter, a struct.
  const void* argument = nullptr;
  size_t argument_bytes = 0;
  c10::ArrayRef<uint16_t> pointers = {};  // indices of the argument's 8-byte words that are addresses
  bool leads_outside = false;             // some addresses are outside the memory that they are used to access
  bool is_of_sets = false;                // from run_foreach(), whose scalars change in each training step
  c10::Device device = c10::kCPU;         // runs on this device's current stream
  c10::ArrayRef<Memory> memory = {};      // only if the machine wants_memory(): all memory that the kernel may access
};

/// Thread-safe.
class Machine {
 public:
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// The device type of the tensors that its kernels access.
  virtual c10::DeviceType device() const = 0;
  virtual const Limits& limits() const = 0;
  /// Everything that an object's bytes depend on besides the text and the device library: compiler, version, architecture, flags.
  virtual std::string_view identity() const = 0;
  /// Returns an object's bytes. Throws an error with the compiler's log.
  virtual std::string compile(std::string_view text) const = 0;
  /// `object`: a result of compile(), of this process or another. Throws if the bytes are not such an object.
  virtual std::shared_ptr<const Module> load(std::string_view object) const = 0;
  /// Returns before the kernel has run. Throws the driver's error.
  virtual void launch(const Launch& launch) const = 0;
  /// Enqueues a write of `value` to the 8 bytes of device memory at `to`, which is 8-byte aligned, on the device's current stream. Returns
  /// false if nothing was written.
  virtual bool write(c10::Device /*device*/, void* /*to*/, uint64_t /*value*/) const { return false; }
  /// Whether launches of this thread must now have Launch::memory, to be checked, or to be able to move it later.
  virtual bool wants_memory() const { return false; }
  /// These three: as in Backend.
  virtual std::string why_not_recorded(c10::Device device) const;
  virtual std::optional<bool> is_captured(c10::Device /*device*/) const { return std::nullopt; }
  virtual std::unique_ptr<Recording> record(c10::Device device, c10::function_ref<void()> give) const;
  /// nullptr: the cost model of a GPU (cost_model.h). A test's machine on the CPU may want that of the backend that it replaces.
  virtual const CostModel* costs() const { return nullptr; }
  /// Empty if kernels run on this device, otherwise the reason why not, for example because cards are of several generations.
  virtual std::string why_not_on(c10::Device /*device*/) const { return {}; }

 protected:
  Machine() = default;
};

/// The installed machine, otherwise the card. nullptr, and the reason in `why_not`, if there is neither.
const Machine* machine(std::string* why_not = nullptr);

/// For tests: `machine`, which must live until the process ends, replaces the card, and this backend handles the tensors of its device()
/// instead of that device's own backend. To be called before the first use of a backend.
void install_machine(const Machine& machine);
/// The machine of install_machine(); nullptr if none.
const Machine* installed_machine();

}  // namespace hindcast::codegen::cuda
