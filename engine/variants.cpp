#include "engine/variants.h"

#include "base/footprint.h"
#include "engine/diagnosis/explain_miss.h"
#include "engine/dynamic_rule.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

namespace hindcast::engine {

using capture::FactKind;
using capture::FactOrigin;
using capture::Facts;
using capture::kStaticFact;

namespace {

bool equal(const Facts& a, const Facts& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(int64_t)) == 0);
}

bool matches_symbols(const Facts& facts, const Facts& captured, const std::vector<int32_t>& symbols, const std::vector<uint8_t>& is_float,
                     capture::Bindings& bindings, std::vector<uint8_t>& bound) {
  if (facts.size() != captured.size()) return false;
  if (symbols.empty()) return equal(facts, captured);
  for (size_t i = 0; i < facts.size(); ++i) {
    const int32_t symbol = symbols[i];
    if (symbol == kStaticFact) {
      if (facts[i] != captured[i]) return false;
    } else if (!is_float.empty() && is_float[i]) {
      bindings.floats[symbol] = std::bit_cast<double>(facts[i]);
    } else if (!bound[symbol]) {
      bound[symbol] = 1;
      bindings.ints[symbol] = facts[i];
    } else if (bindings.ints[symbol] != facts[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

Variant::Variant(Start start, CallFacts facts, capture::DynamicFacts dynamic, std::shared_ptr<const capture::Graph> graph)
    : start_(start), collected_(facts.collected), resumed_(facts.resumed), dynamic_(std::move(dynamic)), slot_(std::move(graph)) {
  evaluator_ = slot_.plan()->evaluator();
  slot_.add_owners_bytes(own_bytes());
}

size_t Variant::own_bytes() const {
  using base::footprint;
  return sizeof(*this) + footprint(collected_) + footprint(resumed_) + footprint(dynamic_.collected) + footprint(dynamic_.resumed) +
         footprint(dynamic_.is_float) + evaluator_.footprint();
}

uint32_t Variant::use(uint64_t now) {
  last_use_.store(now, std::memory_order_relaxed);
  const uint32_t before = uses_.load(std::memory_order_relaxed);
  uses_.store(before + 1, std::memory_order_relaxed);
  return before;
}

bool Variant::same_as(const Variant& other) const {
  return start_ == other.start_ && collected_ == other.collected_ && resumed_ == other.resumed_ &&
         dynamic_.collected == other.dynamic_.collected && dynamic_.resumed == other.dynamic_.resumed;
}

bool Variant::matches(CallFacts facts, capture::Bindings& bindings, capture::Env& env) const {
  if (!is_dynamic()) {
    if (!equal(facts.resumed, resumed_) || !equal(facts.collected, collected_)) return false;
    bindings.ints.clear();
    bindings.floats.clear();
    return evaluator_.evaluate(bindings, env);
  }
  static thread_local std::vector<uint8_t> bound;
  bound.assign(dynamic_.int_hints.size(), 0);
  bindings.ints.assign(dynamic_.int_hints.size(), 0);
  bindings.floats.assign(dynamic_.float_hints.size(), 0);
  return matches_symbols(facts.resumed, resumed_, dynamic_.resumed, {}, bindings, bound) &&
         matches_symbols(facts.collected, collected_, dynamic_.collected, dynamic_.is_float, bindings, bound) &&
         evaluator_.evaluate(bindings, env) && evaluator_.relations_hold(env);
}

void Found::take_plan_as_captured() {
  if (!plan->is_as_captured()) plan = std::static_pointer_cast<const BackwardPlan>(variant->slot().plan_as_captured());
}

Found Entry::find(Start start, CallFacts facts, capture::Bindings& bindings, capture::Env& env) const {
  const SharedLook look(plan_slots_mutex());
  for (const auto& variant : variants_) {
    if (variant->starts_at(start) && variant->matches(facts, bindings, env))
      return {variant, std::static_pointer_cast<const BackwardPlan>(variant->slot().plan(look))};
  }
  return {};
}

void Entry::add(std::shared_ptr<Variant> variant) {
  const std::lock_guard lock(plan_slots_mutex());
  // Threads that met a new structure at once have captured the same.
  if (std::any_of(variants_.begin(), variants_.end(), [&](const auto& known) { return known->same_as(*variant); })) return;
  variants_.insert(variants_.begin(), std::move(variant));
}

bool Entry::remove(const Variant& variant) {
  const std::lock_guard lock(plan_slots_mutex());
  return std::erase_if(variants_, [&](const auto& known) { return known.get() == &variant; }) != 0;
}

std::vector<std::shared_ptr<Variant>> Entry::variants() const {
  const SharedLook look(plan_slots_mutex());
  return variants_;
}

bool Entry::empty() const {
  const SharedLook look(plan_slots_mutex());
  return variants_.empty();
}

std::vector<std::shared_ptr<Variant>> Entry::starting_at(Start start) const {
  std::vector<std::shared_ptr<Variant>> found = variants();
  std::erase_if(found, [&](const auto& variant) { return !variant->starts_at(start); });
  return found;
}

namespace {

// In one row: what flows in at the start, then the collected nodes.
template <class Fact>
std::vector<Fact> row_of(const std::vector<Fact>& resumed, const std::vector<Fact>& collected) {
  std::vector<Fact> row = resumed;
  row.insert(row.end(), collected.begin(), collected.end());
  return row;
}

std::vector<FactKind> kinds_of(const std::vector<FactOrigin>& origins) {
  std::vector<FactKind> kinds;
  for (const FactOrigin& origin : origins) kinds.push_back(origin.kind);
  return kinds;
}

// They change with the model, not from step to step.
std::set<int64_t> leaf_sizes(const capture::Collected& collected, const std::vector<FactOrigin>& origins) {
  std::set<int64_t> sizes;
  for (size_t i = 0; i < origins.size(); ++i) {
    if (origins[i].kind == FactKind::InputSize && collected.calls[origins[i].call].kind == capture::NodeKind::Accumulate) {
      sizes.insert(collected.facts[i]);
    }
  }
  return sizes;
}

capture::DynamicFacts split(DynamicRow row, size_t resumed) {
  capture::DynamicFacts facts;
  if (row.symbols.empty()) return facts;
  const auto middle = static_cast<ptrdiff_t>(resumed);
  facts.resumed.assign(row.symbols.begin(), row.symbols.begin() + middle);
  facts.collected.assign(row.symbols.begin() + middle, row.symbols.end());
  facts.is_float.assign(row.is_float.begin() + middle, row.is_float.end());  // nothing that flows in is a scalar
  facts.int_hints = std::move(row.int_hints);
  facts.is_size = std::move(row.is_size);
  facts.float_hints = std::move(row.float_hints);
  return facts;
}

}  // namespace

bool Entry::is_at_its_limit(size_t limit) const {
  if (!limit_was_reached_.load(std::memory_order_relaxed)) return false;
  const SharedLook look(plan_slots_mutex());
  const auto from_start =
      std::count_if(variants_.begin(), variants_.end(), [](const auto& variant) { return variant->starts_at(Start()); });
  return static_cast<size_t>(from_start) >= limit;
}

NextCapture Entry::plan_capture(const capture::Collected& collected, CallOrigins origins, Start start, CallFacts facts,
                                const Options& options) const {
  const auto earlier = starting_at(start);
  if (earlier.empty()) return {};

  const Facts now = row_of(facts.resumed, facts.collected);
  const auto row_origins = row_of(origins.resumed, origins.collected);
  const auto kinds = kinds_of(row_origins);
  std::vector<Facts> compatible;
  for (const auto& variant : earlier) {
    Facts row = row_of(variant->resumed(), variant->collected());
    if (is_compatible(row, now, kinds)) compatible.push_back(std::move(row));
  }

  DynamicRow chosen;
  if (!compatible.empty() && options.dynamic != Dynamic::Never) {
    chosen = choose_dynamic({now, compatible, kinds, leaf_sizes(collected, origins.collected)});
  }
  // What differs from the nearest capture; for another kind of tensor, from the newest.
  const Facts before =
      compatible.empty() ? row_of(earlier.front()->resumed(), earlier.front()->collected()) : std::move(compatible.front());
  NextCapture next;
  next.misses = explain_miss(collected, row_origins, before, now, [&](size_t place) { return chosen.is_dynamic(place); });
  next.allowed = earlier.size() < options.limit;
  if (!next.allowed) next.misses.insert(next.misses.begin(), limit_reached(next.misses.front(), options.limit));
  next.dynamic = split(std::move(chosen), facts.resumed.size());
  return next;
}

cache::Miss Entry::limit_reached(cache::Miss first, size_t limit) const {
  first.kind = cache::Miss::Kind::LimitReached;
  first.limit = limit;
  first.repeated = limit_was_reached_.exchange(true);
  return first;
}

}  // namespace hindcast::engine
