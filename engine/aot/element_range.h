#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hindcast::engine {

/// From a tensor's first element to the end of its last, in bytes of its storage.
struct ElementRange {
  int64_t begin = 0, end = 0;
  bool meets(const ElementRange& other) const { return begin < other.end && other.begin < end; }
};

inline ElementRange range_of(const at::Tensor& tensor) {
  const auto width = static_cast<int64_t>(tensor.element_size());
  const int64_t begin = tensor.storage_offset();
  if (tensor.numel() == 0) return {begin * width, begin * width};
  int64_t end = begin + 1;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) end += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {begin * width, end * width};
}

}  // namespace hindcast::engine
