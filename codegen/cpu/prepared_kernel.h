#pragma once
// The base class of all prepared calls of CPU kernels.

#include "codegen/cpu/memory/empty_recycled.h"
#include "codegen/kernel/launch_args.h"

namespace hindcast::codegen::cpu {

class PreparedKernel : public PreparedCall {
 public:
  at::Tensor make_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) const final {
    return empty_strided_recycled(sizes, strides, type);
  }

 protected:
  /// Keeps a reference to `scalars`.
  PreparedKernel(std::vector<TensorLayout> layouts, size_t loads, size_t inputs, const ScalarArgs& scalars, const capture::Env& env)
      : loads_(loads), inputs_(inputs), scalars_(scalars), fixed_(scalars.values(env)) {
    results = std::move(layouts);
  }

  using Scalars = c10::SmallVector<double, 16>;
  /// The scalars of a run. `memory`: storage for them, used if they change from run to run.
  const double* scalars_of(const capture::Env& env, Scalars& memory) const {
    if (!scalars_.change()) return fixed_.data();
    memory = scalars_.values(env);
    return memory.data();
  }
  /// The pointers of the loads, then of the results.
  Pointers pointers_of(char* const* addresses) const {
    Pointers pointers(addresses, addresses + loads_);
    pointers.append(addresses + inputs_, addresses + inputs_ + results.size());
    return pointers;
  }

 private:
  const size_t loads_, inputs_;
  const ScalarArgs& scalars_;
  const Scalars fixed_;
};

}  // namespace hindcast::codegen::cpu
