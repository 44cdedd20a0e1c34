#pragma once
// Shared by the tests of the C interface: a caller's texts and tensors.

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "hindcast/hindcast_c.h"

namespace hindcast::tests {

/// The text that a function returned; frees it.
template <class Function, class... Args>
std::string text_of(const Function& function, Args... args) {
  char* text = nullptr;
  if (function(args..., &text) != HINDCAST_OK) return std::string("failed: ") + hindcast_last_error();
  std::string copy = text;
  hindcast_free_text(text);
  return copy;
}

/// As a binding passes tensors.
inline std::vector<void*> pointers_to(std::vector<at::Tensor>& tensors) {
  std::vector<void*> pointers;
  for (at::Tensor& tensor : tensors) pointers.push_back(&tensor);
  return pointers;
}

/// A tensor that a function returned; its caller frees it.
inline at::Tensor taken(void* pointer) {
  const std::unique_ptr<at::Tensor> tensor(static_cast<at::Tensor*>(pointer));
  return *tensor;
}

}  // namespace hindcast::tests
