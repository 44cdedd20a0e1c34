// Linked into a program of tests, this lets HINDCAST_CUDA_EMULATOR=1 put the emulator in the place of the backend for the CPU; with =card
// fusion reckons with a card too.

#include "tests/cuda_emulator/machine/machine.h"

#include <cstdlib>
#include <string_view>

namespace hindcast::tests::cuda {
namespace {

[[maybe_unused]] const bool installed = [] {
  const char* const wanted = std::getenv("HINDCAST_CUDA_EMULATOR");
  if (wanted == nullptr || (std::string_view(wanted) != "1" && std::string_view(wanted) != "card")) return false;
  codegen::cuda::install_machine(emulator_machine());
  if (std::string_view(wanted) == "card") static const CostsOfACard costs;
  return true;
}();

}  // namespace
}  // namespace hindcast::tests::cuda
