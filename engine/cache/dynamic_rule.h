#pragma once
// Decides which facts of a call become symbols. The rule sees only rows of numbers, no autograd nodes.
//
// Sizes and float scalars that changed since an earlier capture become symbols. Sizes that are equal to each other now, and were in every
// capture, share a symbol. With the first size that changes, all sizes except pinned ones become dynamic at once: if the batch size
// changes now, the sequence length may change later, and one capture then covers both.

#include "capture/backward/facts.h"

#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace hindcast::engine {

using capture::Facts;

/// The rule's input. All rows have the same length, and `kinds` says what each column is.
struct FactRows {
  const Facts& now;
  std::span<const Facts> earlier;  // of captures that differ from `now` only in sizes and float scalars
  std::span<const capture::FactKind> kinds;
  const std::set<int64_t>& pinned;  // sizes that belong to the model, not to the call; dynamic only if they changed
};

/// Per column: the number of its symbol; equal numbers are one symbol. Integer and float symbols are numbered separately.
struct DynamicRow {
  std::vector<int32_t> symbols;  // capture::kStaticFact: no symbol. Empty if all are static
  std::vector<uint8_t> is_float;
  std::vector<int64_t> int_hints;  // per integer symbol, its value now
  std::vector<bool> is_size;       // per integer symbol: never negative
  std::vector<bool> is_steady;     // per integer symbol: it had this value in every capture
  std::vector<double> float_hints;

  bool is_dynamic(size_t place) const;
};

/// True if `row` differs from `now` only in facts that can be dynamic.
bool is_compatible(const Facts& row, const Facts& now, std::span<const capture::FactKind> kinds);

DynamicRow choose_dynamic(const FactRows& rows);

}  // namespace hindcast::engine
