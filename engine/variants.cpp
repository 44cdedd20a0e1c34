#include "engine/variants.h"

#include "capture/backward/collect.h"
#include "base/footprint.h"
#include "base/fork.h"
#include "base/format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <utility>

namespace hindcast::engine {

using capture::FactKind;
using capture::FactOrigin;
using capture::Facts;
using capture::kStaticFact;

namespace {

// Of all entries' lists and all variants' plans: held for a look, in a shared way on a hit.
base::ForkSafe<std::shared_mutex>& captures_mutex() {
  static auto* mutex = new base::ForkSafe<std::shared_mutex>(base::ForkRank::Leaf);
  return *mutex;
}

struct All {
  std::atomic<size_t> footprint = 0, count = 0;
};
All& all() {
  static auto* all = new All;
  return *all;
}

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

Variant::Variant(uint32_t call, capture::Stage stage, CallFacts facts, capture::DynamicFacts dynamic,
                 std::shared_ptr<const capture::Graph> graph)
    : call_(call),
      stage_(stage),
      collected_(facts.collected),
      resumed_(facts.resumed),
      dynamic_(std::move(dynamic)),
      float_fact_(dynamic_.is_float),
      graph_(std::move(graph)),
      plan_(std::make_shared<const codegen::Plan>(graph_)),
      captured_plan_(plan_),
      evaluator_(plan_->evaluator()) {
  using base::footprint;
  add_footprint(sizeof(*this) + footprint(collected_) + footprint(resumed_) + footprint(dynamic_.collected) + footprint(dynamic_.resumed) +
                footprint(float_fact_) + graph_->footprint() + plan_->footprint() + evaluator_.footprint());
  all().count.fetch_add(1, std::memory_order_relaxed);
}

Variant::~Variant() {
  all().footprint.fetch_sub(footprint(), std::memory_order_relaxed);
  all().count.fetch_sub(1, std::memory_order_relaxed);
}

size_t Variant::footprint_of_all() { return all().footprint.load(std::memory_order_relaxed); }
size_t Variant::count_of_all() { return all().count.load(std::memory_order_relaxed); }

void Variant::add_footprint(size_t bytes) {  // or less: it wraps around
  footprint_.fetch_add(bytes, std::memory_order_relaxed);
  all().footprint.fetch_add(bytes, std::memory_order_relaxed);
}

std::shared_ptr<const capture::Graph> Variant::graph() const {
  const std::shared_lock lock(captures_mutex());
  return graph_;
}

std::shared_ptr<const codegen::Plan> Variant::plan_as_captured() {
  std::shared_ptr<const capture::Graph> graph;
  {
    const std::shared_lock lock(captures_mutex());
    if (captured_plan_) return captured_plan_;
    graph = graph_;
  }
  auto made = std::make_shared<const codegen::Plan>(graph);
  const size_t bytes = made->footprint();
  const std::lock_guard lock(captures_mutex());
  if (!captured_plan_) {
    captured_plan_ = std::move(made);
    add_footprint(bytes);
  }
  return captured_plan_;
}

void Variant::publish(std::shared_ptr<const capture::Graph> graph, std::shared_ptr<const codegen::Plan> better) {
  const auto footprint_of = [](const auto& of_graph, const auto& plan, const auto& captured) {
    return of_graph->footprint() + plan->footprint() + (plan->shared_graph() == of_graph ? 0 : plan->graph().footprint()) +
           (captured && captured != plan ? captured->footprint() : 0);
  };
  const auto captured = better->is_as_captured() ? better : nullptr;
  const size_t bytes = footprint_of(graph, better, captured);
  auto old_plan = better, old_captured = captured;
  {
    const std::lock_guard lock(captures_mutex());
    graph_.swap(graph);
    plan_.swap(old_plan);
    captured_plan_.swap(old_captured);
  }  // what was there is destroyed after the lock is released
  add_footprint(bytes - footprint_of(graph, old_plan, old_captured));
}

uint32_t Variant::use(uint64_t now) {
  last_use_.store(now, std::memory_order_relaxed);
  const uint32_t before = uses_.load(std::memory_order_relaxed);
  uses_.store(before + 1, std::memory_order_relaxed);
  return before;
}

bool Variant::same_as(const Variant& other) const {
  return call_ == other.call_ && stage_ == other.stage_ && collected_ == other.collected_ && resumed_ == other.resumed_ &&
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
         matches_symbols(facts.collected, collected_, dynamic_.collected, float_fact_, bindings, bound) &&
         evaluator_.evaluate(bindings, env) && evaluator_.relations_hold(env);
}

Found Entry::find(uint32_t call, capture::Stage stage, CallFacts facts, capture::Bindings& bindings, capture::Env& env) const {
  const std::shared_lock lock(captures_mutex());
  for (const auto& variant : variants_) {
    if (variant->starts_at(call, stage) && variant->matches(facts, bindings, env)) return {variant, variant->plan_};
  }
  return {};
}

void Entry::add(std::shared_ptr<Variant> variant) {
  const std::lock_guard lock(captures_mutex());
  // Threads that met a new structure at once have captured the same.
  if (std::any_of(variants_.begin(), variants_.end(), [&](const auto& known) { return known->same_as(*variant); })) return;
  variants_.insert(variants_.begin(), std::move(variant));
}

bool Entry::remove(const Variant& variant) {
  const std::lock_guard lock(captures_mutex());
  return std::erase_if(variants_, [&](const auto& known) { return known.get() == &variant; }) != 0;
}

std::vector<std::shared_ptr<Variant>> Entry::variants() const {
  const std::shared_lock lock(captures_mutex());
  return variants_;
}

bool Entry::empty() const {
  const std::shared_lock lock(captures_mutex());
  return variants_.empty();
}

namespace {

// Facts of the collected nodes and of the start in one row.
struct Row {
  std::vector<int64_t> values;
  static Row of(const Facts& resumed, const Facts& collected) {
    Row row{resumed};
    row.values.insert(row.values.end(), collected.begin(), collected.end());
    return row;
  }
};

// Sizes of leaves: they change with the model, not from step to step.
std::set<int64_t> leaf_sizes(const capture::Collected& collected, const std::vector<FactOrigin>& origins) {
  std::set<int64_t> sizes;
  for (size_t i = 0; i < origins.size(); ++i) {
    if (origins[i].kind == FactKind::InputSize && collected.calls[origins[i].call].kind == capture::NodeKind::Accumulate) {
      sizes.insert(collected.facts[i]);
    }
  }
  return sizes;
}

cache::Miss miss_of(const capture::Collected& collected, const FactOrigin& origin, int64_t before, int64_t after, uint32_t size_index,
                    bool dynamic) {
  using cache::Miss;
  Miss miss;
  const bool root = origin.call == capture::kRootGradient;
  miss.node = root ? "torch::autograd::GraphRoot" : collected.calls[origin.call].node->name();
  miss.node_call = root ? 0 : origin.call + 1;
  const std::string field = capture::field_name(collected, origin);
  switch (origin.kind) {
    case FactKind::TensorSize:
    case FactKind::InputSize:
    case FactKind::SavedSize:
      miss.kind = Miss::Kind::ChangedShapes;
      miss.size_index = size_index;
      miss.made_dynamic = dynamic;
      miss.before = std::to_string(before);
      miss.after = std::to_string(after);
      break;
    case FactKind::FloatScalar:
    case FactKind::ExactScalar: {
      const auto text = [&](int64_t bits) {
        return origin.kind == FactKind::FloatScalar ? base::format("{}", std::bit_cast<double>(bits)) : std::to_string(bits);
      };
      miss.kind = Miss::Kind::ChangedScalar;
      miss.what = field;
      miss.lifted = dynamic;
      miss.before = text(before);
      miss.after = text(after);
      break;
    }
    case FactKind::TensorMeta:
      miss.kind = Miss::Kind::ChangedTensor;
      miss.what = field + " " + capture::describe_change(origin.kind, before, after);
      break;
    case FactKind::TensorStride:
      miss.kind = Miss::Kind::ChangedTensor;
      miss.what = field + " strides";
      miss.before = std::to_string(before);
      miss.after = std::to_string(after);
      break;
  }
  return miss;
}

}  // namespace

NextCapture Entry::plan_capture(const capture::Collected& collected, const std::vector<FactOrigin>& origins,
                                const std::vector<FactOrigin>& resumed_origins, uint32_t call, capture::Stage stage, CallFacts facts,
                                const Options& options) const {
  NextCapture next;
  std::vector<std::shared_ptr<Variant>> earlier;
  {
    const std::shared_lock lock(captures_mutex());
    for (const auto& variant : variants_) {
      if (variant->starts_at(call, stage)) earlier.push_back(variant);
    }
  }
  if (earlier.empty()) return next;
  next.allowed = earlier.size() < options.limit;

  const Row now = Row::of(facts.resumed, facts.collected);
  std::vector<FactOrigin> kinds = resumed_origins;
  kinds.insert(kinds.end(), origins.begin(), origins.end());

  // Earlier captures that differ from this call in sizes and float scalars alone.
  std::vector<Row> samples;
  const Row* nearest = nullptr;
  Row newest = Row::of(earlier.front()->resumed(), earlier.front()->collected());
  for (const auto& variant : earlier) {
    Row row = Row::of(variant->resumed(), variant->collected());
    bool compatible = row.values.size() == now.values.size();
    for (size_t i = 0; compatible && i < now.values.size(); ++i) {
      compatible = row.values[i] == now.values[i] || capture::can_be_dynamic(kinds[i].kind);
    }
    if (compatible) samples.push_back(std::move(row));
  }
  if (!samples.empty()) nearest = &samples.front();

  // ATen treats sizes of 0 and 1 in ways of their own (broadcasting, contiguity): captures of them serve only them. So do
  // SymInt fields that went the same way: they are those sizes.
  std::set<std::vector<int64_t>> degenerate;
  const auto history_of = [&](size_t i) {
    std::vector<int64_t> history{now.values[i]};
    for (const Row& sample : samples) history.push_back(sample.values[i]);
    return history;
  };
  for (size_t i = 0; i < now.values.size(); ++i) {
    const bool shape = kinds[i].kind == FactKind::TensorSize || kinds[i].kind == FactKind::InputSize;
    if (shape && (now.values[i] == 0 || now.values[i] == 1)) degenerate.insert(history_of(i));
  }
  const auto stays = [&](size_t i) {
    return !capture::can_be_dynamic(kinds[i].kind) ||
           (kinds[i].kind != FactKind::FloatScalar && now.values[i] <= 1 && degenerate.contains(history_of(i)));
  };

  const bool can = !samples.empty() && options.dynamic == Dynamic::Automatic;
  std::vector<uint8_t> is_dynamic(now.values.size(), 0);
  if (can) {
    const auto leaves = leaf_sizes(collected, origins);
    std::set<int64_t> activation_sizes;
    bool any_size_changed = false;
    for (size_t i = 0; i < now.values.size(); ++i) {
      if (stays(i)) continue;
      for (const Row& sample : samples) is_dynamic[i] |= sample.values[i] != now.values[i];
      any_size_changed |= is_dynamic[i] && kinds[i].kind != FactKind::FloatScalar;
    }
    const auto joins = [&](size_t i) {
      return !is_dynamic[i] && kinds[i].kind != FactKind::FloatScalar && now.values[i] > 1 && !leaves.contains(now.values[i]);
    };
    if (any_size_changed) {
      for (size_t i = 0; i < now.values.size(); ++i) {
        const bool shape = kinds[i].kind == FactKind::TensorSize || kinds[i].kind == FactKind::InputSize;
        if (shape && joins(i)) activation_sizes.insert(now.values[i]);
      }
      for (size_t i = 0; i < now.values.size(); ++i) {
        if (capture::can_be_dynamic(kinds[i].kind) && joins(i) && activation_sizes.contains(now.values[i])) is_dynamic[i] = 1;
      }
    }
  }

  // One symbol for sizes that were equal in every capture and are now; each scalar is its own.
  capture::DynamicFacts& dynamic = next.dynamic;
  if (std::find(is_dynamic.begin(), is_dynamic.end(), 1) != is_dynamic.end()) {
    std::map<std::vector<int64_t>, int32_t> classes;
    std::vector<int32_t> symbols(now.values.size(), kStaticFact);
    dynamic.is_float.assign(facts.collected.size(), 0);
    const size_t resumed = facts.resumed.size();
    for (size_t i = 0; i < now.values.size(); ++i) {
      if (!is_dynamic[i]) continue;
      if (kinds[i].kind == FactKind::FloatScalar) {
        symbols[i] = static_cast<int32_t>(dynamic.float_hints.size());
        dynamic.float_hints.push_back(std::bit_cast<double>(now.values[i]));
        dynamic.is_float[i - resumed] = 1;
        continue;
      }
      const auto [found, fresh] = classes.try_emplace(history_of(i), static_cast<int32_t>(dynamic.int_hints.size()));
      if (fresh) {
        dynamic.int_hints.push_back(now.values[i]);
        dynamic.is_size.push_back(false);
      }
      symbols[i] = found->second;
      if (kinds[i].kind != FactKind::SavedSize) dynamic.is_size[found->second] = true;
    }
    dynamic.resumed.assign(symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(resumed));
    dynamic.collected.assign(symbols.begin() + static_cast<ptrdiff_t>(resumed), symbols.end());
  }

  // Why: what differs from the nearest capture; for another kind of tensor, from the newest.
  if (!nearest) nearest = &newest;
  uint32_t size_index = 0;
  for (size_t i = 0; i < now.values.size() && i < nearest->values.size(); ++i) {
    const FactKind kind = kinds[i].kind;
    const bool size = kind == FactKind::TensorSize || kind == FactKind::InputSize || kind == FactKind::SavedSize;
    if (nearest->values[i] != now.values[i]) {
      next.misses.push_back(miss_of(collected, kinds[i], nearest->values[i], now.values[i], size_index, is_dynamic[i]));
      if (kind == FactKind::TensorMeta) break;  // what follows belongs to another layout
    }
    size_index += size;
  }
  if (next.misses.empty()) {
    next.misses.push_back(
        {.kind = cache::Miss::Kind::FailedGuard, .node = "torch::autograd::GraphRoot", .what = "the relations between sizes"});
  }
  if (!next.allowed) {
    cache::Miss miss = next.misses.front();
    miss.kind = cache::Miss::Kind::LimitReached;
    miss.limit = options.limit;
    miss.repeated = limit_was_reached_.exchange(true);
    next.misses.insert(next.misses.begin(), std::move(miss));
  }
  return next;
}

}  // namespace hindcast::engine
