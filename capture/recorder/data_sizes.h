#pragma once
// Ops with a result whose size depends on data in a known way: the number of true elements, or of groups of equal ones.

#include "capture/shape_rules/shape_rules.h"

#include <utility>

namespace hindcast::capture {

/// Whether sizes_by_data() supports the op. Indexing by masks is recorded as indexing by numbers (masks.cpp).
bool has_data_size(const c10::OperatorName& op);

struct SizesByData {
  std::vector<Sizes> sizes;                     // by result
  std::vector<std::pair<size_t, size_t>> dims;  // result and dimension that have the symbol's size; the first pair binds it
  ExprId symbol;
};

/// Makes a new unbacked symbol. ATen treats sizes of 0 and 1 specially: a program captured with one of these is for that size alone, any
/// other for all sizes from 2 on.
SizesByData sizes_by_data(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, const std::vector<at::Tensor>& outputs,
                          SymbolTable& symbols);

}  // namespace hindcast::capture
