#include "tests/gpu/on_gpu.h"

#include "codegen/kernel/backend.h"
#include "tests/gpu/texts/find_gpu.h"

#include <cstdlib>
#include <stdexcept>

namespace hindcast::tests {

const std::string& why_no_gpu() {
  static const auto* const reason = new std::string(find_gpu());
  return *reason;
}

c10::Device device_of_tests() {
  static const char* const device = std::getenv("HINDCAST_TEST_DEVICE");
  return device == nullptr ? c10::Device(c10::kCUDA, 0) : c10::Device(device);
}

void synchronize() { codegen::backend_of(c10::kCUDA)->synchronize(); }

const codegen::cuda::Card& card() {
  std::string why_not;
  const codegen::cuda::Machine* const machine = codegen::cuda::machine(&why_not);
  if (machine == nullptr) throw std::runtime_error("there is a card, but hindcast does not use it: " + why_not);
  return dynamic_cast<const codegen::cuda::Card&>(*machine);
}

}  // namespace hindcast::tests
