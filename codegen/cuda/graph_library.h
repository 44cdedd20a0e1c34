#pragma once
// libhindcast_cuda_graphs.so, opened when first asked for: beside the object that holds this code, in the lib folder beside that one's
// folder (a program of the build tree), then where the dynamic linker looks.

#include "codegen/cuda/graphs/plugin.h"

#include <string>

namespace hindcast::codegen::cuda {

/// Null where it cannot be opened, and then why.
const CudaGraphsTable* graph_library(std::string* why_not);
/// Null where nobody has opened it.
const CudaGraphsTable* opened_graph_library();

}  // namespace hindcast::codegen::cuda
