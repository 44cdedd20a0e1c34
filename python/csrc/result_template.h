#pragma once
// Results of a compiled function, put together from their tensors.

#include "python/csrc/objects.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace hindcast::python {

/// A tree of tuples, lists and dicts; at its leaves tensors and what counts by value.
class ResultTemplate {
 public:
  /// Of what hindcast/_facts.py says: None for a tensor, ("value", it), ("tuple", parts), ("list", parts), or ("dict", parts, keys).
  static ResultTemplate of(Object* described);

  /// A new reference to the result of these tensors, all of them. Null: Python's error is set.
  Object* make(const std::vector<at::Tensor>& tensors) const;
  /// The same of the tensors from `next` on, which is moved behind them.
  Object* make_next(const std::vector<at::Tensor>& tensors, size_t& next) const;

  bool is_tuple() const { return kind_ == Kind::Tuple; }
  bool is_tensor() const { return kind_ == Kind::Tensor; }
  /// Of a tuple, list or dict.
  const std::vector<ResultTemplate>& parts() const { return parts_; }

 private:
  enum class Kind : uint8_t { Tensor, Value, Tuple, List, Dict };

  Kind kind_ = Kind::Tensor;
  Reference value_;
  std::vector<Reference> keys_;
  std::vector<ResultTemplate> parts_;
};

}  // namespace hindcast::python
