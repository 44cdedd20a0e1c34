#pragma once
// A kind of device that kernels are made for.
//
// Capture, passes, fusion and plans are the same for all devices. What differs is behind this interface; a backend is a folder
// beside codegen/cpu with files of the same names (docs/design-kernels.md, "A new backend"). `engine` knows this header and no backend.

#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/group.h"
#include "codegen/kernel/foreach_sets.h"
#include "codegen/kernel/kernel.h"
#include "codegen/kernel/later.h"
#include "codegen/kernel/recording.h"
#include "codegen/plan/plan.h"

#include <c10/core/DeviceType.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hindcast::codegen {

/// A source file of a program that is written to disk: its name, relative, and its text.
struct ProgramFile {
  std::string name, text;
};

/// What a backend's allocator keeps, as hindcast::Stats has it.
struct MemoryCounts {
  uint64_t reused = 0, fresh = 0, returned = 0;
  uint64_t held_bytes = 0, held_buffers = 0;
};

class Backend {
 public:
  virtual c10::DeviceType device() const = 0;

  /// What fusion reckons with.
  virtual const CostModel& cost_model() const = 0;

  /// The kernel of a body: the one that this process has, else from the store on disk, else compiled. Equal bodies get one
  /// kernel, which lives as long as somebody holds it. Safe from many threads. Null, with the reason, when there is no compiler
  /// or it failed. `later`: what few calls need may be left to it, and calls do without until it is there. Null: all is there at once.
  virtual std::shared_ptr<const Kernel> kernel(const Body& body, std::string& why_not, RunLater later = nullptr) const = 0;
  /// Empty: kernels run on this device. Else why not.
  virtual std::string why_not_on(c10::Device /*device*/) const { return {}; }
  /// Runs a group's kernel, which kernel(group.body) of this backend gave. The call answers what leaves ask for.
  virtual std::unique_ptr<const OpCall> call(const Group& group, std::shared_ptr<const Kernel> kernel) const = 0;

  /// Runs a kernel, which kernel(body) of this backend gave, on each set. `body` is of_sets, and has no leaves.
  virtual void run_foreach(const Body& body, const Kernel& kernel, const ForeachSets& sets) const = 0;

  /// Empty: what is given to the device can be recorded. Else why not.
  virtual std::string why_not_recorded(c10::Device device) const;
  /// Whether what this thread gives to the device now is captured for a graph, by the program or for record(). None: nobody knows.
  virtual std::optional<bool> is_captured(c10::Device /*device*/) const { return std::nullopt; }
  /// Entry points are on their way that calls asked for: what is recorded now would go on with those in their place.
  virtual bool compiles_for_calls() const { return false; }
  /// What `give` gives to the current stream of `device`, kernels and ATen's alike, is written down and not done. Memory that it asks for
  /// is the recording's: it may be read as long as the recording is there, and each launch writes to it again. Throws what `give` throws,
  /// and where something of it cannot be recorded. The current stream is another one meanwhile.
  virtual std::unique_ptr<Recording> record(c10::Device device, c10::function_ref<void()> give) const;

  /// The kernel's text, for logs.
  virtual std::string source(const Body& body) const = 0;
  /// A program of LibTorch alone that runs the kernel's text beside ATen's ops: files that can be compiled as the head of main.cpp
  /// says. `given`: the group's inputs, of which only types, sizes and strides are used. Where there can be no main.cpp,
  /// no_main.txt says why.
  virtual std::vector<ProgramFile> reproducer(const capture::Graph& graph, const Group& group,
                                              const std::unordered_map<uint32_t, at::Tensor>& given) const = 0;

  /// One pass over the memory of a tensor of this device without gaps. Only floating point and complex types have infinities.
  virtual bool has_non_finite(const at::Tensor& dense) const = 0;

  /// The norm of all elements of all tensors together, as torch::nn::utils::clip_grad_norm_ takes it: a tensor of one float64 on their
  /// device. `tensors`: one or more, plain ones of this device, real.
  virtual at::Tensor vector_norm(at::TensorList tensors, double order) const;

  /// Returns when the work that this thread gave to the device is done: what a clock is read behind.
  virtual void synchronize() const = 0;
  /// Bytes read and written per microsecond by a copy of memory that is mapped already. Measured once, in some 20 ms.
  virtual double copy_bandwidth() const = 0;

  virtual MemoryCounts memory_counts() const = 0;
  virtual void reset_memory_counts() const = 0;
  /// Gives the free memory that its allocator holds back to LibTorch's. Bytes.
  virtual size_t trim_memory() const = 0;

 protected:
  ~Backend() = default;  // a backend is there before main() and is never destroyed
};

/// Null: nothing takes tensors of this device.
const Backend* backend_of(c10::DeviceType device);
/// Of a graph's tensors that are not on the CPU, if it has such: others in it are ATen's then. Null: nothing takes those, or they are of
/// more than one type of device.
const Backend* backend_of(const capture::Graph& graph);
/// All of them.
c10::SmallVector<const Backend*, 2> backends();

}  // namespace hindcast::codegen
