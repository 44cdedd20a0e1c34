#pragma once
// Structs that begin with their size, so that a caller and a library of different versions are compatible.

#include "c_api/boundary.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace hindcast::c_api {

/// Copies as much of `defaults` as fits into the caller's struct.
template <class Struct>
void init_struct(Struct* to, uint64_t size, Struct defaults) {
  require(to != nullptr, "the struct is NULL");
  require(size >= sizeof(uint64_t), "the struct's size is " + std::to_string(size) + "; give its sizeof");
  std::memset(static_cast<void*>(to), 0, size);
  defaults.size = size;
  std::memcpy(static_cast<void*>(to), &defaults, std::min<uint64_t>(size, sizeof(Struct)));
}

/// Reads the caller's struct; fields that it lacks get the values in `defaults`. NULL: all fields do.
template <class Struct>
Struct read_struct(const Struct* given, Struct defaults, const char* init) {
  if (given == nullptr) return defaults;
  require(given->size >= sizeof(uint64_t),
          "the struct's size is " + std::to_string(given->size) + "; call " + init + "() before you set its fields");
  std::memcpy(static_cast<void*>(&defaults), given, std::min<uint64_t>(given->size, sizeof(Struct)));
  for (uint64_t i = sizeof(Struct); i < given->size; ++i) {
    require(reinterpret_cast<const unsigned char*>(given)[i] == 0,
            "the struct has a field that this hindcast does not know, at byte " + std::to_string(i) + ", and it is not 0");
  }
  return defaults;
}

}  // namespace hindcast::c_api
