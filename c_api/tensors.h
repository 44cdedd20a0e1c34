#pragma once
// Converts a caller's `void*`, which points to an `at::Tensor`.

#include "c_api/boundary.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace hindcast::c_api {

/// `what`: a noun for errors. Throws std::invalid_argument for a null pointer and for an undefined tensor.
inline std::vector<at::Tensor> tensors_at(void* const* pointers, uint64_t count, const std::string& what) {
  require(pointers != nullptr || count == 0, "the array of " + what + "s is NULL");
  std::vector<at::Tensor> tensors;
  tensors.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    require(pointers[i] != nullptr, what + " " + std::to_string(i) + " of " + std::to_string(count) + " is NULL");
    tensors.push_back(*static_cast<const at::Tensor*>(pointers[i]));
    require(tensors.back().defined(), what + " " + std::to_string(i) + " of " + std::to_string(count) + " is an undefined tensor");
  }
  return tensors;
}

}  // namespace hindcast::c_api
