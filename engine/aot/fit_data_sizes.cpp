#include "engine/aot/fit_data_sizes.h"

#include <algorithm>

namespace hindcast::engine {

using capture::ExprId;
using capture::SymbolTable;

namespace {

std::vector<int64_t> hints_of(const SymbolTable& table) {
  const auto ints = capture::bindings_at_capture(table).ints;
  return {ints.begin() + static_cast<std::ptrdiff_t>(table.backed_symbols()), ints.end()};
}

}  // namespace

bool have_data_sizes_alike(const capture::Graph& a, const capture::Graph& b) {
  const auto one = hints_of(*a.symbols), other = hints_of(*b.symbols);
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](int64_t x, int64_t y) { return std::min<int64_t>(x, 2) == std::min<int64_t>(y, 2); });
}

bool is_same_for_data_sizes(const SymbolTable& table, std::span<const int64_t> values, ExprId own, const SymbolTable& plain_table,
                            ExprId plain) {
  const capture::Evaluator of_own(table, {own}), of_plain(plain_table, {plain});
  for (const int64_t sample : {101, 1009, 10007}) {
    capture::Bindings bindings{{values.begin(), values.end()}, {}}, plain_bindings;
    for (size_t u = 0; u < table.unbacked_symbols(); ++u) {
      const auto size = sample + 37 * static_cast<int64_t>(u * u);
      bindings.ints.push_back(size);
      plain_bindings.ints.push_back(size);
    }
    capture::Env env, plain_env;
    if (!of_own.evaluate(bindings, env) || !of_plain.evaluate(plain_bindings, plain_env)) return false;
    if (env.integer(own) != plain_env.integer(plain)) return false;
  }
  return true;
}

std::vector<capture::Relation> relations_of_data_sizes(const SymbolTable& table) {
  std::vector<capture::Relation> found;
  for (const capture::Relation& relation : table.relations()) {
    if (std::max(table.bound_by(relation.lhs), table.bound_by(relation.rhs)) > 0) found.push_back(relation);
  }
  return found;
}

}  // namespace hindcast::engine
