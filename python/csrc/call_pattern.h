#pragma once
// What the arguments of a call are besides their tensors, taken apart in C++: a part of what hindcast/_facts.py knows. Calls with equal patterns
// have equal facts there.

#include "python/csrc/objects.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

namespace hindcast::python {

class CallPattern {
 public:
  /// From the arguments of a call: tuples, lists and dicts of tensors, numbers and the like, and objects that count by identity. `tensors` gets
  /// the tensors in order. False: there is something else among them. Borrows what it points to until keep().
  bool take(Object* args, Object* kwargs, std::vector<at::Tensor>& tensors);
  /// Owns what counts by value. False: one of the objects is not in `objects`, a list, so that another call may not be recognised by it.
  bool keep(Object* objects);

  bool equals(const CallPattern& other) const;

  /// The types of what counts by value: a frozenset, kept for good.
  static void know_values(Object* types) { value_types_ = types; }

 private:
  enum class Kind : uint8_t { Tensor, Tuple, List, Dict, Name, Value, Object };
  struct Part {
    Kind kind;
    std::ptrdiff_t size = 0;
    Object* object = nullptr;
  };
  bool take_value(Object* value, std::vector<at::Tensor>& tensors);
  bool take_dict(Object* dict, std::vector<at::Tensor>& tensors);
  static bool are_equal(const Part& a, const Part& b);

  inline static Object* value_types_ = nullptr;
  c10::SmallVector<Part, 12> parts_;
  std::vector<Reference> kept_;
};

}  // namespace hindcast::python
