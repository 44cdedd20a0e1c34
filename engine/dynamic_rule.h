#pragma once
// Which facts of a call become symbols: a rule over rows of numbers, which knows no autograd node.
//
// Facts that are sizes or float scalars, and changed since an earlier capture, become symbols. Sizes that were equal in every capture
// and are equal now share a symbol. With the first size that changes, all sizes that are no pinned size become dynamic at once: a batch
// that changed today is a sequence length that changes tomorrow, and both cost one capture.

#include "capture/backward/facts.h"

#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace hindcast::engine {

using capture::Facts;

/// What the rule looks at. All rows have one length, and `kinds` says what each place is.
struct FactRows {
  const Facts& now;
  std::span<const Facts> earlier;  // of captures that differ from `now` in sizes and float scalars alone
  std::span<const capture::FactKind> kinds;
  const std::set<int64_t>& pinned;  // sizes that change with the model and not from call to call; dynamic only if they changed
};

/// By place: numbers of symbols, equal numbers are one symbol. Integer and float symbols count apart.
struct DynamicRow {
  std::vector<int32_t> symbols;  // capture::kStaticFact: no symbol; empty: all are static
  std::vector<uint8_t> is_float;
  std::vector<int64_t> int_hints;  // per integer symbol, its value now
  std::vector<bool> is_size;       // per integer symbol: never negative
  std::vector<bool> is_steady;     // per integer symbol: it had this value in every capture
  std::vector<double> float_hints;

  bool is_dynamic(size_t place) const;
};

/// `row` differs from `now` in facts alone that can be dynamic.
bool is_compatible(const Facts& row, const Facts& now, std::span<const capture::FactKind> kinds);

DynamicRow choose_dynamic(const FactRows& rows);

}  // namespace hindcast::engine
