#include "tests/gpu/texts/find_gpu.h"

#include "codegen/cuda/driver.h"

#include <ATen/ATen.h>

#include <dlfcn.h>

#include <exception>

namespace hindcast::tests {

std::string find_gpu() {
  std::string why_not;
  // Before LibTorch's part for CUDA, which takes a second and a gigabyte to load.
  if (codegen::cuda::Driver::get(&why_not) == nullptr) return why_not;
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) return dlerror();
  try {
    at::ones({1}, at::kCUDA);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace hindcast::tests
