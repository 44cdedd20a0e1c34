#pragma once
// The backward of a compiled function as a program of the call's arguments, for a backward that is itself differentiated.

#include "hindcast/graph.h"

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace hindcast::capture {

/// The program recomputes the intermediate values of the forward, since derivatives flow through them. A trace notes which of them the call
/// has saved: Joint::known.
struct RecomputedBackward {
  uint64_t number = 0;  // unique in the process
  std::shared_ptr<const Graph> graph;
  Bindings bindings;
  std::vector<std::pair<ValueId, at::Tensor>> given;  // with their autograd history
  struct Saved {
    ValueId value;
    at::Tensor tensor;
    bool was_contiguous;  // in the trace of the function
  };
  std::vector<Saved> saved;        // values that are recomputed, as the call has saved them
  std::vector<ValueId> tangents;   // by input of the node; undefined: not read
  std::vector<ValueId> gradients;  // by edge; undefined: nothing flows along it

  /// Computes the gradients by edge, operator by operator in this thread's state. `tensors` stand in for `given`, then `saved`; `sizes` for
  /// the integers of `bindings`. Tangents that are read must be defined.
  std::vector<at::Tensor> run(std::span<const at::Tensor> tensors, std::span<const at::Tensor> tangent_tensors,
                              std::span<const c10::SymInt> sizes) const;
};

}  // namespace hindcast::capture
