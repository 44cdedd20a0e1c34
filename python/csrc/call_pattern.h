#pragma once
// The structure and non-tensor values of a call's arguments, for a subset of what hindcast/_facts.py handles. Calls with equal patterns
// have equal facts there.

#include "python/csrc/objects.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

namespace hindcast::python {

class CallPattern {
 public:
  /// Reads a call's arguments: tuples, lists and dicts of tensors, of numbers and the like, and of objects compared by identity. `tensors`
  /// gets the tensors in order. Returns false if an argument is anything else, or a list or dict is at two places. Borrows its references
  /// until keep().
  bool take(Object* args, Object* kwargs, std::vector<at::Tensor>& tensors);
  /// Takes ownership of what is compared by value. Returns false if an object is not in the list `objects`: the pattern must then not be
  /// used to recognise calls.
  bool keep(Object* objects);

  bool equals(const CallPattern& other) const;

  /// Sets the types that are compared by value: a frozenset that is never freed.
  static void know_values(Object* types) { value_types_ = types; }

 private:
  enum class Kind : uint8_t { Tensor, Tuple, List, Dict, Name, Value, Object };
  struct Part {
    Kind kind;
    std::ptrdiff_t size = 0;  // of a tensor: at which place the same one is first, plus 1, if tensors are given twice
    Object* object = nullptr;
  };
  bool take_value(Object* value, std::vector<at::Tensor>& tensors);
  bool take_dict(Object* dict, std::vector<at::Tensor>& tensors);
  bool take_container(Object* container);
  void mark_shared(const std::vector<uint32_t>& firsts);
  static bool are_equal(const Part& a, const Part& b);

  inline static Object* value_types_ = nullptr;
  c10::SmallVector<Part, 12> parts_;
  c10::SmallVector<Object*, 4> containers_;  // lists and dicts, while they are taken
  std::vector<Reference> kept_;
};

}  // namespace hindcast::python
