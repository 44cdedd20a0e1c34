#pragma once
// Wraps a callback from another language as a C++ function: tensors in, tensors out, errors as exceptions.

#include "hindcast/hindcast_c.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hindcast::c_api {

class Callback {
 public:
  using Release = void (*)(void*);

  Callback(hindcast_callback function, void* user_data, Release release, uint64_t output_count)
      : function_(function), user_data_(user_data), release_(release), output_count_(output_count) {}
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  ~Callback() {
    if (release_ != nullptr) release_(user_data_);
  }

  /// Throws std::runtime_error with the callback's own text, and if its outputs violate what the header requires.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;
  uint64_t output_count() const { return output_count_; }

 private:
  const hindcast_callback function_;
  void* const user_data_;
  const Release release_;
  const uint64_t output_count_;
};

}  // namespace hindcast::c_api
