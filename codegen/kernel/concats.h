#pragma once
// Results that are concatenations of parts which a kernel computes (Group::Concat).

#include "codegen/fuse/cost_model.h"
#include "codegen/kernel/launch_args.h"

#include <vector>

namespace hindcast::codegen {

/// Memory for the parts: their place in the result, or separate buffers if their contiguous pieces in the result would be too short.
class Concats {
 public:
  Concats(const Group& group, at::IntArrayRef domain, const capture::Env& env, MakeTensor make_new, const CostModel& costs);

  struct Part {
    char* memory;
    Ints steps;          // byte strides, by axis of the domain
    size_t result = 0;   // in place: the concat, and where in its memory the part begins
    int64_t offset = 0;  // bytes
  };
  /// Indexed by Body::stores, beginning after those of Group::stores.
  c10::ArrayRef<Part> parts() const { return parts_; }
  /// Whether each part is dense, in the order of the domain.
  bool are_dense() const { return are_dense_; }
  size_t size() const { return results_.size(); }
  /// Whether all parts are at their place in the result.
  bool are_in_place() const;
  /// The layout of one concat's result, if it is in place.
  TensorLayout layout_of(size_t concat) const { return TensorLayout::of(results_[concat].tensor); }
  /// The tensors that hold the parts.
  void for_each_tensor(c10::function_ref<void(const at::Tensor&)> see) const;
  /// The result of one concat, whose parts have been written. Call once.
  at::Tensor take(size_t concat);

 private:
  void add(const Group::Concat& concat, at::ScalarType type, at::IntArrayRef domain, const capture::Env& env, MakeTensor make_new);

  struct Result {
    at::Tensor tensor;               // the result, or
    std::vector<at::Tensor> copied;  // its parts, to be copied into it
    int64_t dim = 0;
    bool is_stack = false;
  };
  const CostModel& costs_;
  std::vector<Result> results_;
  c10::SmallVector<Part, 4> parts_;
  bool are_dense_ = true;
};

}  // namespace hindcast::codegen
