// In this program the emulator replaces the backend of the CPU.

#include "tests/cuda_emulator/machine/machine.h"

namespace hindcast::tests::cuda {
namespace {

[[maybe_unused]] const bool installed = (codegen::cuda::install_machine(emulator_machine()), true);

}  // namespace
}  // namespace hindcast::tests::cuda
