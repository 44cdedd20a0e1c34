#include "codegen/cpu/memory/empty_recycled.h"

#include "codegen/cpu/memory/recycler.h"

#include <ATen/EmptyTensor.h>

namespace hindcast::codegen::cpu {

at::Tensor empty_strided_recycled(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);
  return at::detail::empty_strided_generic(sizes, strides, &Recycler::of_process(), kCpu, dtype);
}

}  // namespace hindcast::codegen::cpu
