#pragma once
// Gradients of several leaves that are one tensor, or overlapping views of one.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace hindcast::engine {

enum class SameTensor : uint8_t {
  Kept,    // a tensor that occurs twice stays: AccumulateGrad copies what has another holder
  Copied,  // for those who write to it or keep it as .grad
};

/// Copies each gradient whose memory is also that of an earlier one, so that a write to one leaves the others as they are. AccumulateGrad
/// does not see that two tensors share a storage, and keeps both. Undefined tensors are allowed. Returns true if it copied any.
bool separate_gradients(std::span<at::Tensor> gradients, SameTensor same);

}  // namespace hindcast::engine
