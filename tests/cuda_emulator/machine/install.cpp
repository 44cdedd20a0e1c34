// Linked into a program of tests, this lets HINDCAST_CUDA_EMULATOR=1 put the emulator in the place of the backend for the CPU; with =card
// fusion reckons with a card too.

#include "tests/cuda_emulator/machine/machine.h"

#include <cstdlib>
#include <string_view>

namespace hindcast::tests::cuda {
namespace {

[[maybe_unused]] const bool installed = [] {
  const char* const variable = std::getenv("HINDCAST_CUDA_EMULATOR");
  const std::string_view wanted = variable == nullptr ? "" : variable;
  if (wanted != "1" && wanted != "card") return false;
  codegen::cuda::install_machine(emulator_machine());
  if (wanted == "card") static const CostsOfACard costs;
  return true;
}();

}  // namespace
}  // namespace hindcast::tests::cuda
