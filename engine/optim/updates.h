#pragma once
// The updates of one step, gathered by kernel and then run: one pass over the memory of each parameter, many small parameters at once.

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
  /// `tensors`: parameter, gradient, state in the order of the update's formula. They live until run(). Empty: it will be made. Else
  /// nothing was kept, and it is said why no kernel makes it. Compiles a kernel at its first use.
  std::string_view add(const Update& update, c10::ArrayRef<const at::Tensor*> tensors);

  /// An update that `step` makes by itself, in its turn. May be called once, by run().
  void add_alone(const at::Tensor& parameter, std::function<void()> step);

  /// What all gradients are multiplied by where they are read, a tensor of one number: for all that is added from here on. Undefined:
  /// nothing.
  void set_factor(const at::Tensor& factor);
  void set_factor(const at::Tensor& factor, const at::Tensor& as_float) {
    factor_ = factor;
    factor_as_float_ = as_float;
  }
  void let_go(const at::Tensor& factor) {
    if (factor_.is_same(factor)) set_factor({}, {});
  }
  const at::Tensor& factor_as_float() const { return factor_as_float_; }

  /// Whether no update touches what another one writes: their order does not matter then.
  bool are_apart();

  /// On the current streams of the tensors' devices. Updates that touch what another one writes are made one by one, in their order. What
  /// a step throws leaves here when all updates of kernels are made. Forgets all.
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
    std::shared_ptr<const codegen::Kernel> kernel;  // null: why_not says why
    std::string why_not;
    codegen::ForeachSets sets = {};
  };
  struct Item {
    KernelOf* kernel = nullptr;
    size_t number = 0;  // of the kernel's sets; without a kernel of alone_
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
  std::vector<Range> apart_, sorted_;  // the written ranges that were found to be apart: as they came, and sorted
  std::vector<Range> apart_from_;      // read ones that none of them meets
};

}  // namespace hindcast::engine
