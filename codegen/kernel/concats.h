#pragma once
// Results that are made of parts (Group::Concat).

#include "codegen/fuse/cost_model.h"
#include "codegen/kernel/launch_args.h"

#include <vector>

namespace hindcast::codegen {

/// Memory for the parts: where they lie in the result, or, where that would mean pieces of a few elements each, memory of their own.
class Concats {
 public:
  Concats(const Group& group, at::IntArrayRef domain, const capture::Env& env, MakeTensor make_new, const CostModel& costs);

  struct Part {
    char* memory;
    Ints steps;  // bytes, by axis of the domain
  };
  /// By Body::stores, from the first behind Group::stores.
  c10::ArrayRef<Part> parts() const { return parts_; }
  /// A part's elements lie side by side, in the order of the domain.
  bool are_dense() const { return are_dense_; }
  /// The tensors that hold the parts.
  void for_each_tensor(c10::function_ref<void(const at::Tensor&)> see) const;
  /// Of one concat, whose parts are written. Once.
  at::Tensor take(size_t concat);

 private:
  void add(const Group::Concat& concat, at::ScalarType type, at::IntArrayRef domain, const capture::Env& env, MakeTensor make_new);

  struct Result {
    at::Tensor tensor;               // or
    std::vector<at::Tensor> copied;  // its parts
    int64_t dim = 0;
    bool is_stack = false;
  };
  const CostModel& costs_;
  std::vector<Result> results_;
  c10::SmallVector<Part, 4> parts_;
  bool are_dense_ = true;
};

}  // namespace hindcast::codegen
