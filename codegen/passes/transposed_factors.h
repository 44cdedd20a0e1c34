#pragma once
// Copies a transposed weight once for all products that read it, as in the steps of a recurrent cell: otherwise each product would copy it.

#include "codegen/passes/rewrite.h"

namespace hindcast::codegen {

Rewrite transposed_factors(const capture::Graph& graph);

}  // namespace hindcast::codegen
