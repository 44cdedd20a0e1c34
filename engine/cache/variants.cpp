#include "engine/cache/variants.h"

#include "engine/cache/dynamic_rule.h"
#include "engine/cache/symbol_binder.h"
#include "engine/diagnosis/explain_miss.h"
#include "hindcast/detail/footprint.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

namespace hindcast::engine {

using capture::FactKind;
using capture::FactOrigin;
using capture::Facts;

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
    if (!are_equal(facts.resumed, resumed_) || !are_equal(facts.collected, collected_)) return false;
    bindings.ints.clear();
    bindings.floats.clear();
    return evaluator_.evaluate(bindings, env);
  }
  SymbolBinder binder(bindings, dynamic_.int_hints.size(), dynamic_.float_hints.size());
  return binder.bind(facts.resumed, resumed_, dynamic_.resumed) &&
         binder.bind(facts.collected, collected_, dynamic_.collected, dynamic_.is_float) && evaluator_.evaluate(bindings, env) &&
         evaluator_.relations_hold(env);
}

void Found::use_plan_as_captured() {
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
  // Threads that met a new structure at the same time have captured the same variant.
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

// One row: the facts of what flows in at the start, then those of the collected nodes.
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

// Sizes of leaf tensors, which belong to the model and do not change between training steps.
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
  facts.is_float.assign(row.is_float.begin() + middle, row.is_float.end());  // no scalars flow in
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
  // Explains the difference to the newest compatible capture, or to the newest one if none is compatible.
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
