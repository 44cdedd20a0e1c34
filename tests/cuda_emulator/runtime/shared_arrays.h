#pragma once
// The shared arrays of a compiled kernel, from the symbol table.

#include <string>
#include <vector>

#include "tests/cuda_emulator/runtime/module.h"

namespace hindcast::tests::cuda {

/// All thread_local variables of a shared object.
std::vector<SharedArray> shared_arrays_of(const std::string& path);

}  // namespace hindcast::tests::cuda
