#pragma once
// Data-dependent sizes (unbacked symbols) in two traces of a function at different argument sizes; used by fit.h.

#include "hindcast/graph.h"

#include <cstdint>
#include <span>
#include <vector>

namespace hindcast::engine {

/// True if each data-dependent size is 0 in both, 1 in both, or more in both: only then can the programs be the same.
bool have_data_sizes_alike(const capture::Graph& a, const capture::Graph& b);

/// True if `own`, with these values of its table's backed symbols, equals `plain`, whose table has no backed symbols, for all values of the
/// unbacked symbols. Checked on a few sample values.
bool is_same_for_data_sizes(const capture::SymbolTable& table, std::span<const int64_t> values, capture::ExprId own,
                            const capture::SymbolTable& plain_table, capture::ExprId plain);

/// The relations that contain unbacked symbols.
std::vector<capture::Relation> relations_of_data_sizes(const capture::SymbolTable& table);

}  // namespace hindcast::engine
