#pragma once
// Rebuilds the Python result of a compiled function from its tensors.

#include "python/csrc/objects.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace hindcast::python {

/// A tree of tuples, lists and dicts; its leaves are tensors and constants.
class ResultTemplate {
 public:
  /// From hindcast/_facts.py's description: None for a tensor, ("value", it), ("tuple", parts), ("list", parts), or ("dict", parts, keys).
  static ResultTemplate of(Object* described);

  /// A new reference to the result built from all of these tensors; nullptr if Python's error is set.
  Object* make(const std::vector<at::Tensor>& tensors) const;
  /// The same from the tensors at `next` on; advances `next` past those used.
  Object* make_next(const std::vector<at::Tensor>& tensors, size_t& next) const;

  bool is_tuple() const { return kind_ == Kind::Tuple; }
  bool is_tensor() const { return kind_ == Kind::Tensor; }
  /// The children of a tuple, list or dict.
  const std::vector<ResultTemplate>& parts() const { return parts_; }

 private:
  enum class Kind : uint8_t { Tensor, Value, Tuple, List, Dict };

  Kind kind_ = Kind::Tensor;
  Reference value_;
  std::vector<Reference> keys_;
  std::vector<ResultTemplate> parts_;
};

}  // namespace hindcast::python
