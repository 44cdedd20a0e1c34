// Linked into a program of tests, this lets HINDCAST_CUDA_EMULATOR=1 put the emulator in the place of the backend for the CPU.

#include "tests/cuda_emulator/machine/machine.h"

#include <cstdlib>
#include <string_view>

namespace hindcast::tests::cuda {
namespace {

[[maybe_unused]] const bool installed = [] {
  const char* const wanted = std::getenv("HINDCAST_CUDA_EMULATOR");
  if (wanted == nullptr || std::string_view(wanted) != "1") return false;
  codegen::cuda::install_machine(emulator_machine());
  return true;
}();

}  // namespace
}  // namespace hindcast::tests::cuda
