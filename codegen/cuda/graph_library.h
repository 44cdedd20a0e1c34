#pragma once
// libhindcast_cuda_graphs.so, opened on first use. It is looked for beside the object that holds this code, then in the lib folder beside
// that object's folder (for programs of the build tree), then by the dynamic linker.

#include "codegen/cuda/graphs/plugin.h"

#include <string>

namespace hindcast::codegen::cuda {

/// nullptr, and the reason in `why_not`, if the library cannot be opened.
const CudaGraphsTable* graph_library(std::string* why_not);
/// nullptr if the library has not been opened yet.
const CudaGraphsTable* opened_graph_library();

}  // namespace hindcast::codegen::cuda
