#pragma once
// Gathers the updates of one optimizer step by kernel, then runs them: one pass over each parameter's memory, many small ones at once.

#include "codegen/kernel/backend.h"
#include "engine/optim/formula.h"

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace hindcast::engine {

class Updates {
 public:
  /// Adds an update. `tensors`: parameter, gradient, state in the order of the update's formula; they must live until run(). Returns "" if
  /// it was added, or why no kernel can do it, with nothing kept. Compiles each kernel at its first use.
  std::string_view add(const Update& update, c10::ArrayRef<const at::Tensor*> tensors);

  /// Adds an update that `step` does without a kernel. run() calls `step` at most once, in order.
  void add_alone(const at::Tensor& parameter, std::function<void()> step);

  /// Sets the factor, a tensor with one element, that gradients are multiplied by as they are read, for updates added from now on.
  /// Undefined: no factor.
  void set_factor(const at::Tensor& factor);
  void set_factor(const at::Tensor& factor, const at::Tensor& as_float) {
    factor_ = factor;
    factor_as_float_ = as_float;
  }
  void let_go(const at::Tensor& factor, const at::Tensor& as_float) {
    if (factor_.is_same(factor)) factor_.reset();
    if (factor_as_float_.is_same(as_float)) factor_as_float_.reset();
  }
  const at::Tensor& factor_as_float() const { return factor_as_float_; }

  /// True if no update reads or writes memory that another one writes, so that their order does not matter.
  bool are_apart();

  /// Runs the updates on the current streams of the tensors' devices, and forgets them. Updates with overlapping memory run one by one, in
  /// order. An exception from a `step` is rethrown once all kernel updates are done.
  void run();
  /// Forgets what was added and did not run.
  void clear();

 private:
  using Name = std::tuple<void (*)(Formula&, uint32_t), uint32_t, at::ScalarType, c10::Device, bool>;
  struct KernelOf {
    Name name;
    codegen::Body body;
    std::vector<uint8_t> tensors;
    const codegen::Backend* backend = nullptr;
    std::shared_ptr<const codegen::Kernel> kernel;  // nullptr: why_not has the reason
    std::string why_not;
    codegen::ForeachSets sets = {};
  };
  struct Item {
    KernelOf* kernel = nullptr;
    size_t number = 0;  // index into the kernel's sets, or into alone_ if there is no kernel
  };
  struct Range {
    const char *begin, *end;
    bool operator==(const Range&) const = default;
  };

  void run_together();
  void run_in_order();
  KernelOf& kernel_of(const Update& update, at::ScalarType type, c10::Device device);
  const double* keep(const Update& update);
  const void* factor_for(at::ScalarType compute) const;

  std::list<KernelOf> kernels_;
  KernelOf* last_ = nullptr;
  std::deque<c10::SmallVector<double, 12>> scalars_;
  at::Tensor factor_, factor_as_float_;
  std::vector<Item> items_;  // in order
  std::vector<std::function<void()>> alone_;
  std::vector<Range> written_, read_;
  std::vector<Range> apart_, sorted_;  // the written ranges last found to be disjoint: in order of arrival, and sorted
  std::vector<Range> apart_from_;      // the read ranges found to be disjoint from them
};

}  // namespace hindcast::engine
