#pragma once
// Compares a call's facts with those of a capture: each fact equals the captured one, or is the value of a symbol. Used by variants of
// backwards and by specialisations of functions.

#include "capture/backward/facts.h"
#include "hindcast/symbols.h"

#include <cstdint>
#include <vector>

namespace hindcast::engine {

class SymbolBinder {
 public:
  /// Writes the symbols' values to `bindings`, which is resized to so many integers and floats, all 0. One binder at a time per thread.
  SymbolBinder(capture::Bindings& bindings, size_t ints, size_t floats);

  /// Returns false if a static fact differs, or if a symbol would get two values, from this call of bind() or an earlier one. `symbols` and
  /// `is_float` have one entry per fact; if `symbols` is empty, all facts are static, and if `is_float` is empty, no symbol is a float.
  bool bind(const capture::Facts& now, const capture::Facts& captured, const std::vector<int32_t>& symbols,
            const std::vector<uint8_t>& is_float = {});

 private:
  capture::Bindings& bindings_;
  std::vector<uint8_t>& bound_;  // by integer symbol
};

/// Whether all facts are equal.
bool are_equal(const capture::Facts& a, const capture::Facts& b);

}  // namespace hindcast::engine
