#pragma once
// Checks that Python objects are unchanged. hindcast/_walk.py encodes what it saw as words; this is the guard that compares them.
//
// This is not an operator, since it reads Python objects: it is called through ctypes with the GIL held, or by hindcast._C.

#include "hindcast/api.h"

#include <cstdint>

namespace hindcast::python {

/// The kinds of records in the words. An *entry* is the address of an object, or 0 for no object. Its lowest bit is set if an equal
/// object of the same type is also accepted; such an object is immutable, and kept alive by the code that wrote the words.
enum class Watch : int64_t {
  Type,       // object, type
  OwnDict,    // object, its __dict__
  Dict,       // dict, its type, n, then n times key, entry: all that is in it, in order
  Item,       // dict, key, entry
  Sequence,   // list, tuple or the like, its type, n, n entries
  Set,        // set, its size, n, n objects that are in the set
  Cell,       // cell, entry
  Function,   // function, code, defaults, keyword defaults
  Attribute,  // object, name, entry: a slot of the object
  Size,       // dict, its size: it has no name that it did not have
  Tensor,     // tensor, what hindcast_facts_of_tensor() says of it
};

}  // namespace hindcast::python

extern "C" {
/// Returns 1 if everything is as the words say. The first word is their number; 0 means that an object they refer to has died. Any object
/// that is read was reached through an earlier word, or is kept alive by one that was.
HINDCAST_API int hindcast_unchanged(const int64_t* words);
/// The dtype, device and requires_grad of a torch.Tensor, packed: a function may read them of a tensor that no operator reads.
HINDCAST_API int64_t hindcast_facts_of_tensor(void* tensor);
}
