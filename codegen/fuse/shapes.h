#pragma once
// Which dims of one shape run over which axes of another that has as many elements in the same order.

#include "capture/symbols/symbols.h"

#include <optional>
#include <vector>

namespace hindcast::codegen {

using Sizes = std::vector<capture::ExprId>;

/// Of a domain, and of what is read and made in it.
inline constexpr size_t kMaxRank = 8;

/// Dims of one shape and axes of another, outermost first, that hold the same number of elements; one of each, or several of
/// one kind.
struct Block {
  std::vector<uint8_t> dims, axes;
};

/// The finest blocks, from the outermost; dims and axes of size 1 are in none. `same_numel`: it is known that both shapes have
/// as many elements, so that what is left on both sides when the inner parts are equal is equal too.
/// nullopt: they do not match, or it cannot be told for all values of the symbols.
std::optional<std::vector<Block>> match(const capture::SymbolTable& symbols, const Sizes& dims, const Sizes& axes, bool same_numel);

int64_t hint_of_numel(const capture::SymbolTable& symbols, const Sizes& sizes);

}  // namespace hindcast::codegen
