#pragma once
// Matches the dims of one shape to the axes of another with the same number of elements in the same order, as in a reshape.

#include "hindcast/symbols.h"

#include <optional>
#include <vector>

namespace hindcast::codegen {

using Sizes = std::vector<capture::ExprId>;

/// The largest rank of a domain and of its operands and results.
inline constexpr size_t kMaxRank = 8;

/// Dims of one shape and axes of another, outermost first, with the same product of sizes: one of each, or one and several.
struct Block {
  std::vector<uint8_t> dims, axes;
};

/// The finest blocks, outermost first; dims and axes of size 1 are in none. `same_numel`: both shapes are known to have the same number of
/// elements, so that the remaining outer dims match if the inner ones do. nullopt if the shapes do not match for all values of the symbols.
std::optional<std::vector<Block>> match(const capture::SymbolTable& symbols, const Sizes& dims, const Sizes& axes, bool same_numel);

int64_t hint_of_numel(const capture::SymbolTable& symbols, const Sizes& sizes);

}  // namespace hindcast::codegen
