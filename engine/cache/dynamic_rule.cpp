#include "engine/cache/dynamic_rule.h"

#include "capture/backward/trace.h"

#include <algorithm>
#include <bit>
#include <map>

namespace hindcast::engine {
namespace {

using capture::FactKind;
using capture::kStaticFact;

/// The values of one column: now, then in the earlier captures.
using History = std::vector<int64_t>;

bool is_shape(FactKind kind) { return kind == FactKind::TensorSize || kind == FactKind::InputSize; }

class Rule {
 public:
  explicit Rule(const FactRows& rows) : rows_(rows), is_dynamic_(rows.now.size(), 0) {}

  DynamicRow run() {
    find_degenerate();
    if (take_what_changed()) take_activation_sizes();
    return assign_symbols();
  }

 private:
  size_t size() const { return rows_.now.size(); }

  History history_of(size_t place) const {
    History history{rows_.now[place]};
    for (const Facts& row : rows_.earlier) history.push_back(row[place]);
    return history;
  }

  // ATen treats sizes 0 and 1 specially (broadcasting, contiguity), so captures with them are valid only for them. SymInt fields with the
  // same history are these sizes, and are treated alike.
  void find_degenerate() {
    for (size_t i = 0; i < size(); ++i) {
      if (is_shape(rows_.kinds[i]) && (rows_.now[i] == 0 || rows_.now[i] == 1)) degenerate_.insert(history_of(i));
    }
  }

  bool stays(size_t place) const {
    const FactKind kind = rows_.kinds[place];
    if (!capture::can_be_dynamic(kind)) return true;
    return kind != FactKind::FloatScalar && rows_.now[place] <= 1 && degenerate_.contains(history_of(place));
  }

  // Returns true if a size changed.
  bool take_what_changed() {
    bool any_size = false;
    for (size_t i = 0; i < size(); ++i) {
      if (stays(i)) continue;
      for (const Facts& row : rows_.earlier) is_dynamic_[i] |= row[i] != rows_.now[i];
      any_size |= is_dynamic_[i] && rows_.kinds[i] != FactKind::FloatScalar;
    }
    return any_size;
  }

  bool may_join(size_t place) const {
    return !is_dynamic_[place] && rows_.kinds[place] != FactKind::FloatScalar && rows_.now[place] > 1 &&
           !rows_.pinned.contains(rows_.now[place]);
  }

  // Makes unpinned sizes dynamic, and SymInt fields with the same values.
  void take_activation_sizes() {
    std::set<int64_t> sizes;
    for (size_t i = 0; i < size(); ++i) {
      if (is_shape(rows_.kinds[i]) && may_join(i)) sizes.insert(rows_.now[i]);
    }
    for (size_t i = 0; i < size(); ++i) {
      if (capture::can_be_dynamic(rows_.kinds[i]) && may_join(i) && sizes.contains(rows_.now[i])) is_dynamic_[i] = 1;
    }
  }

  // Sizes that are equal now and were in every capture share a symbol; each scalar gets its own.
  DynamicRow assign_symbols() const {
    DynamicRow row;
    if (std::find(is_dynamic_.begin(), is_dynamic_.end(), 1) == is_dynamic_.end()) return row;
    row.symbols.assign(size(), kStaticFact);
    row.is_float.assign(size(), 0);
    std::map<History, int32_t> classes;
    for (size_t i = 0; i < size(); ++i) {
      if (!is_dynamic_[i]) continue;
      if (rows_.kinds[i] == FactKind::FloatScalar) {
        row.symbols[i] = static_cast<int32_t>(row.float_hints.size());
        row.float_hints.push_back(std::bit_cast<double>(rows_.now[i]));
        row.is_float[i] = 1;
        continue;
      }
      const auto [found, is_new] = classes.try_emplace(history_of(i), static_cast<int32_t>(row.int_hints.size()));
      if (is_new) {
        row.int_hints.push_back(rows_.now[i]);
        row.is_size.push_back(false);
        const History& history = found->first;
        row.is_steady.push_back(std::equal(history.begin() + 1, history.end(), history.begin()));
      }
      row.symbols[i] = found->second;
      if (rows_.kinds[i] != FactKind::SavedSize) row.is_size[found->second] = true;
    }
    return row;
  }

  const FactRows& rows_;
  std::vector<uint8_t> is_dynamic_;  // by column
  std::set<History> degenerate_;
};

}  // namespace

bool DynamicRow::is_dynamic(size_t place) const { return !symbols.empty() && symbols[place] != kStaticFact; }

bool is_compatible(const Facts& row, const Facts& now, std::span<const FactKind> kinds) {
  if (row.size() != now.size()) return false;
  for (size_t i = 0; i < now.size(); ++i) {
    if (row[i] != now[i] && !capture::can_be_dynamic(kinds[i])) return false;
  }
  return true;
}

DynamicRow choose_dynamic(const FactRows& rows) { return Rule(rows).run(); }

}  // namespace hindcast::engine
