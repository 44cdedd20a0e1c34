#include "engine/cache/symbol_binder.h"

#include <bit>
#include <cstring>

namespace hindcast::engine {

using capture::Facts;
using capture::kStaticFact;

namespace {

// A binder for each call would allocate for each call.
std::vector<uint8_t>& bound_of_thread() {
  static thread_local std::vector<uint8_t> bound;
  return bound;
}

}  // namespace

bool are_equal(const Facts& a, const Facts& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(int64_t)) == 0);
}

SymbolBinder::SymbolBinder(capture::Bindings& bindings, size_t ints, size_t floats) : bindings_(bindings), bound_(bound_of_thread()) {
  bound_.assign(ints, 0);
  bindings.ints.assign(ints, 0);
  bindings.floats.assign(floats, 0);
}

bool SymbolBinder::bind(const Facts& now, const Facts& captured, const std::vector<int32_t>& symbols,
                        const std::vector<uint8_t>& is_float) {
  if (now.size() != captured.size()) return false;
  if (symbols.empty()) return are_equal(now, captured);
  for (size_t i = 0; i < now.size(); ++i) {
    const int32_t symbol = symbols[i];
    if (symbol == kStaticFact) {
      if (now[i] != captured[i]) return false;
    } else if (!is_float.empty() && is_float[i]) {
      bindings_.floats[symbol] = std::bit_cast<double>(now[i]);
    } else if (!bound_[symbol]) {
      bound_[symbol] = 1;
      bindings_.ints[symbol] = now[i];
    } else if (bindings_.ints[symbol] != now[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace hindcast::engine
