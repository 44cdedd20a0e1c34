#include "tests/gpu/on_gpu.h"

#include "codegen/kernel/backend.h"

#include <ATen/ATen.h>

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>

namespace hindcast::tests {
namespace {

using codegen::cuda::Driver;
using codegen::cuda::Machine;

std::string look_for_gpu() {
  std::string why_not;
  // Before LibTorch's part for CUDA, which takes a second and a gigabyte to load.
  if (Driver::get(&why_not) == nullptr) return why_not;
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) return dlerror();
  try {
    at::ones({1}, at::kCUDA);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

const std::string& why_no_gpu() {
  static const auto* const reason = new std::string(look_for_gpu());
  return *reason;
}

c10::Device device_of_tests() {
  static const char* const device = std::getenv("HINDCAST_TEST_DEVICE");
  return device == nullptr ? c10::Device(c10::kCUDA, 0) : c10::Device(device);
}

void synchronize() { codegen::backend_of(c10::kCUDA)->synchronize(); }

const codegen::cuda::Card& card() {
  std::string why_not;
  const Machine* const machine = codegen::cuda::machine(&why_not);
  if (machine == nullptr) throw std::runtime_error("there is a card, but hindcast does not use it: " + why_not);
  return dynamic_cast<const codegen::cuda::Card&>(*machine);
}

}  // namespace hindcast::tests
