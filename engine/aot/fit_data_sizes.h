#pragma once
// Sizes that depend on data, of two traces of a function at other sizes of its arguments: fit.h.

#include "capture/graph/graph.h"

#include <cstdint>
#include <span>
#include <vector>

namespace hindcast::engine {

/// Each such size is 0 in both, 1 in both, or more in both: only then may the programs be one.
bool have_data_sizes_alike(const capture::Graph& a, const capture::Graph& b);

/// Whether an expression of one table, where its backed symbols have these values, is an expression of another table that has no backed
/// symbols: for all values of the unbacked ones, as some values tell.
bool is_same_for_data_sizes(const capture::SymbolTable& table, std::span<const int64_t> values, capture::ExprId own,
                            const capture::SymbolTable& plain_table, capture::ExprId plain);

/// The relations that unbacked symbols are in.
std::vector<capture::Relation> relations_of_data_sizes(const capture::SymbolTable& table);

}  // namespace hindcast::engine
