#pragma once
// Ops one of whose results has a size that depends on data, in a way that is known: the number of true elements, of groups of equal ones.

#include "capture/shape_rules/shape_rules.h"

#include <utility>

namespace hindcast::capture {

/// Whether sizes_by_data() knows the op. Indexing by masks is recorded as indexing by numbers (masks.cpp).
bool has_data_size(const c10::OperatorName& op);

struct SizesByData {
  std::vector<Sizes> sizes;                     // by result
  std::vector<std::pair<size_t, size_t>> dims;  // result and dimension that have the symbol's size; the first one binds it
  ExprId symbol;
};

/// With a new unbacked symbol. ATen treats sizes of 0 and 1 in ways of their own: a program of these is for that size alone, any other for
/// all sizes from 2 on.
SizesByData sizes_by_data(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, const std::vector<at::Tensor>& outputs,
                          SymbolTable& symbols);

}  // namespace hindcast::capture
