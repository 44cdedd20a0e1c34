#pragma once
// Whether Python objects are what they were: the guard of hindcast/_walk.py, which writes down what it saw as words.
//
// This is no operator: it looks at Python objects, so it is called by ctypes with the GIL held, or by hindcast._C.

#include "base/api.h"

#include <cstdint>

namespace hindcast::python {

/// What the words say. An *entry* is the address of an object; 0: there is none. Its lowest bit is set where an equal object of the same
/// type will do: such an object is immutable and kept by who wrote the words.
enum class Watch : int64_t {
  Type,       // object, type
  OwnDict,    // object, its __dict__
  Dict,       // dict, its type, n, then n times key, entry: all that is in it, in order
  Item,       // dict, key, entry
  Sequence,   // list, tuple or the like, its type, n, n entries
  Set,        // set, its size, n, n objects that are in it
  Cell,       // cell, entry
  Function,   // function, code, defaults, keyword defaults
  Attribute,  // object, name, entry: a slot of the object
};

}  // namespace hindcast::python

extern "C" {
/// 1: all is as the words say. The first one says how many there are; 0: an object that they name is gone. An object that is looked into was
/// found at its place by an earlier word, or is kept alive by one that was.
HINDCAST_API int hindcast_unchanged(const int64_t* words);
}
