#pragma once
// The interface to a kind of device that kernels are compiled for.
//
// Capture, passes, fusion and plans are the same for all devices. What differs is behind this interface; a backend is a folder
// beside codegen/cpu with files of the same names (docs/design-kernels.md, "A new backend"). `engine` includes this header and no backend.

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

/// Counters of a backend's allocator, as in hindcast::Stats.
struct MemoryCounts {
  uint64_t reused = 0, fresh = 0, returned = 0;
  uint64_t held_bytes = 0, held_buffers = 0;
};

class Backend {
 public:
  virtual c10::DeviceType device() const = 0;

  /// The cost model that fusion uses.
  virtual const CostModel& cost_model() const = 0;

  /// The kernel of a body: the one that this process has, otherwise from the store on disk, otherwise compiled. Equal bodies share one
  /// kernel, which lives as long as it is referenced. Thread-safe. nullptr, and the reason, if there is no compiler or it failed.
  /// `later`: may be given the compilation of rarely used entry points, which calls do without until then. nullptr: all is compiled now.
  virtual std::shared_ptr<const Kernel> kernel(const Body& body, std::string& why_not, RunLater later = nullptr) const = 0;
  /// Empty if kernels run on this device, otherwise the reason why not.
  virtual std::string why_not_on(c10::Device /*device*/) const { return {}; }
  /// The call that runs a group's kernel, as returned by kernel(group.body) of this backend. The call answers leaf requests.
  virtual std::unique_ptr<const OpCall> call(const Group& group, std::shared_ptr<const Kernel> kernel) const = 0;

  /// Runs a kernel, as returned by kernel(body) of this backend, on each set. `body` is of_sets, and has no leaves.
  virtual void run_foreach(const Body& body, const Kernel& kernel, const ForeachSets& sets) const = 0;

  /// Empty if work on the device can be captured into a graph, otherwise the reason why not.
  virtual std::string why_not_recorded(c10::Device device) const;
  /// Whether this thread's current stream is being captured into a graph, by the program or for record(); nullopt if unknown.
  virtual std::optional<bool> is_captured(c10::Device /*device*/) const { return std::nullopt; }
  /// Whether entry points that calls asked for are still being compiled: a graph captured now would keep using their slower substitutes.
  virtual bool compiles_for_calls() const { return false; }
  /// Captures everything that `give` enqueues on the current stream of `device`, hindcast's kernels and ATen's, into a graph, without
  /// running it. Memory allocated by `give` belongs to the recording: it may be read as long as the recording lives, and each launch writes
  /// to it again. Throws what `give` throws, and if some of the work cannot be captured. `give` runs with another current stream.
  virtual std::unique_ptr<Recording> record(c10::Device device, c10::function_ref<void()> give) const;

  /// The kernel's text, for logs.
  virtual std::string source(const Body& body) const = 0;
  /// A standalone LibTorch program that runs the kernel's text and, for comparison, ATen's ops: files to be compiled as the head of
  /// main.cpp says. `given`: the group's inputs, of which only types, sizes and strides are used. If there can be no main.cpp, the file
  /// no_main.txt says why.
  virtual std::vector<ProgramFile> reproducer(const capture::Graph& graph, const Group& group,
                                              const std::unordered_map<uint32_t, at::Tensor>& given) const = 0;

  /// Whether a dense tensor of this device has an infinity or NaN, by one pass over its memory. False for integral types.
  virtual bool has_non_finite(const at::Tensor& dense) const = 0;

  /// The norm of all elements of all tensors together, as in torch::nn::utils::clip_grad_norm_: a tensor of one float64 on their device.
  /// `tensors`: at least one; plain real tensors of this device.
  virtual at::Tensor vector_norm(at::TensorList tensors, double order) const;

  /// Waits until the work that this thread enqueued on the device is done, for timing.
  virtual void synchronize() const = 0;
  /// Bytes read plus written per microsecond by a copy between buffers that are mapped already. Measured once, in about 20 ms.
  virtual double copy_bandwidth() const = 0;

  virtual MemoryCounts memory_counts() const = 0;
  virtual void reset_memory_counts() const = 0;
  /// Returns the free memory that its allocator holds to LibTorch's allocator. Returns the number of bytes.
  virtual size_t trim_memory() const = 0;

 protected:
  ~Backend() = default;  // a backend exists before main() and is never destroyed
};

/// nullptr if no backend handles tensors of this device.
const Backend* backend_of(c10::DeviceType device);
/// The backend of the graph's tensors that are not on the CPU, if there are any (ATen then computes those on the CPU); otherwise the CPU's.
/// nullptr if no backend handles the device, or if there is more than one type of device besides the CPU.
const Backend* backend_of(const capture::Graph& graph);
/// All backends.
c10::SmallVector<const Backend*, 2> backends();

}  // namespace hindcast::codegen
