// Linked into a test program, this makes HINDCAST_CUDA_EMULATOR=1 replace the backend for the CPU by the emulator; with =card, fusion also
// uses a card's costs.

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
