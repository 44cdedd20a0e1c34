#pragma once
// The two normal forms that give equal expressions one id. Included only by the files of SymbolTable.

#include "hindcast/symbols.h"

#include "capture/symbols/plain_integers.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

namespace hindcast::capture {

inline Number of_int(int64_t value) {
  Number number;
  number.i = value;
  return number;
}

inline Number of_real(double value) {
  Number number;
  number.f = value;
  return number;
}

struct SymbolTable::Linear {
  struct Term {
    ExprId id;
    int64_t coefficient;
  };
  c10::SmallVector<Term, 6> terms;  // sorted by id, no zero coefficients
  int64_t constant = 0;

  void add(ExprId id, int64_t coefficient) {
    auto at = std::lower_bound(terms.begin(), terms.end(), id, [](const Term& term, ExprId other) { return term.id < other; });
    if (at == terms.end() || at->id != id) {
      terms.insert(at, Term{id, coefficient});
    } else if ((at->coefficient = wrapping_add(at->coefficient, coefficient)) == 0) {
      terms.erase(at);
    }
  }
};

struct SymbolTable::Product {
  int64_t coefficient = 1;
  c10::SmallVector<ExprId, 6> factors;  // sorted by id
};

}  // namespace hindcast::capture
