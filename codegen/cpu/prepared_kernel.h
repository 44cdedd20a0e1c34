#pragma once
// The base class of all prepared calls of CPU kernels.

#include "codegen/cpu/memory/empty_recycled.h"
#include "codegen/kernel/concats.h"
#include "codegen/kernel/launch_args.h"

namespace hindcast::codegen::cpu {

class PreparedKernel : public PreparedCall {
 public:
  at::Tensor make_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) const final {
    return empty_strided_recycled(sizes, strides, type);
  }

 protected:
  /// `layouts`: of the results, first those of stores, then those of concats. Keeps a reference to `scalars`.
  PreparedKernel(std::vector<TensorLayout> layouts, size_t loads, size_t inputs, const ScalarArgs& scalars, const capture::Env& env,
                 const Concats& concats)
      : loads_(loads), inputs_(inputs), stores_(layouts.size() - concats.size()), scalars_(scalars), fixed_(scalars.values(env)) {
    results = std::move(layouts);
    for (const Concats::Part& part : concats.parts()) parts_.push_back({inputs_ + stores_ + part.result, part.offset});
  }

  using Scalars = c10::SmallVector<double, 16>;
  /// The scalars of a run. `memory`: storage for them, used if they change from run to run.
  const double* scalars_of(const capture::Env& env, Scalars& memory) const {
    if (!scalars_.change()) return fixed_.data();
    memory = scalars_.values(env);
    return memory.data();
  }
  /// The pointers of the loads, then of the stores, then of the parts of concats.
  Pointers pointers_of(char* const* addresses) const {
    Pointers pointers(addresses, addresses + loads_);
    pointers.append(addresses + inputs_, addresses + inputs_ + stores_);
    for (const Part& part : parts_) pointers.push_back(addresses[part.address] + part.offset);
    return pointers;
  }

 private:
  struct Part {
    size_t address;  // of the concat's result
    int64_t offset;
  };

  const size_t loads_, inputs_, stores_;
  c10::SmallVector<Part, 4> parts_;
  const ScalarArgs& scalars_;
  const Scalars fixed_;
};

}  // namespace hindcast::codegen::cpu
