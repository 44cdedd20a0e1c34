#pragma once
// Values of a program's expressions where its integer symbols are sizes of a running trace: LibTorch's SymInts, which are expressions of
// that trace's table.

#include "hindcast/symbols.h"

#include <ATen/core/ivalue.h>

#include <optional>
#include <span>
#include <vector>

namespace hindcast::capture {

class SymbolicEnv {
 public:
  /// `ints`, `floats`: by symbol number.
  SymbolicEnv(const SymbolTable& table, std::span<const c10::SymInt> ints, std::span<const double> floats)
      : table_(table), ints_(ints), floats_(floats), integers_(table.size()), reals_(table.size()) {}

  c10::SymInt integer(ExprId id);
  c10::SymFloat real(ExprId id);
  /// Checks each of the program's relations in the trace, which then depends on them. Throws Unsupported if one does not hold.
  void require_relations();

 private:
  c10::SymInt compute_integer(const Expr& expr);
  c10::SymFloat compute_real(const Expr& expr);
  bool compare(const Relation& relation);

  const SymbolTable& table_;
  const std::span<const c10::SymInt> ints_;
  const std::span<const double> floats_;
  std::vector<std::optional<c10::SymInt>> integers_;
  std::vector<std::optional<c10::SymFloat>> reals_;
};

}  // namespace hindcast::capture
