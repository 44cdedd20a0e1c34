#pragma once
// All captures of one structure, and the rule by which sizes become dynamic.
//
// A *variant* is one capture with the facts it was made under. The first is static: every fact must be as it was. When only
// sizes or float scalars changed since, those become symbols. Sizes that always changed together, and those that were
// always equal, share a symbol. With the first change, all sizes that are no size of a leaf become dynamic at once: a batch
// that changed today is a sequence length that changes tomorrow, and both cost one capture. The static variant stays.
//
// Variants of a *continuation* start behind a boundary (a hook, an opaque node) whose results were not those of the
// capture; the same rule holds for them.

#include "cache/miss.h"
#include "capture/backward/trace.h"
#include "codegen/plan/plan.h"
#include "engine/options.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace hindcast::engine {

/// Facts of one call: of the collected nodes, and of what flows in at the start.
struct CallFacts {
  const capture::Facts& collected;
  const capture::Facts& resumed;
};

/// One capture. Its plan may change at any time: a run holds the one that it was given.
class Variant {
 public:
  Variant(uint32_t call, capture::Stage stage, CallFacts facts, capture::DynamicFacts dynamic, std::shared_ptr<const capture::Graph> graph);
  ~Variant();
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;

  /// True if this capture is right for the facts; then `bindings` and `env` are filled for the run.
  bool matches(CallFacts facts, capture::Bindings& bindings, capture::Env& env) const;
  bool starts_at(uint32_t call, capture::Stage stage) const { return call == call_ && stage == stage_; }
  bool same_as(const Variant& other) const;
  bool is_dynamic() const { return !dynamic_.int_hints.empty() || !dynamic_.float_hints.empty(); }
  /// Op by op as captured. Not kept beside a better one until somebody asks for it.
  std::shared_ptr<const codegen::Plan> plan_as_captured();
  /// Backwards that look it up from now on run this plan of `graph`, which is the one that was captured, or a copy.
  void publish(std::shared_ptr<const capture::Graph> graph, std::shared_ptr<const codegen::Plan> better);
  std::shared_ptr<const capture::Graph> graph() const;
  const capture::Facts& collected() const { return collected_; }
  const capture::Facts& resumed() const { return resumed_; }
  const capture::DynamicFacts& dynamic() const { return dynamic_; }
  /// Call number `now` found it. How many did before; two threads at once may count as one.
  uint32_t use(uint64_t now);
  void made_by(uint64_t now) { last_use_.store(now, std::memory_order_relaxed); }
  uint64_t last_use() const { return last_use_.load(std::memory_order_relaxed); }
  size_t footprint() const { return footprint_.load(std::memory_order_relaxed); }
  /// Of all captures that somebody holds.
  static size_t footprint_of_all();
  static size_t count_of_all();

  std::vector<SegmentFunction> compiled;  // of the user's compiler; empty: ATen replay

 private:
  uint32_t call_;
  capture::Stage stage_;
  capture::Facts collected_, resumed_;
  capture::DynamicFacts dynamic_;
  std::vector<uint8_t> float_fact_;  // per collected fact: the symbol is a float
  // Under the captures' lock:
  std::shared_ptr<const capture::Graph> graph_;
  std::shared_ptr<const codegen::Plan> plan_, captured_plan_;  // the second may be null
  capture::Evaluator evaluator_;
  std::atomic<uint64_t> last_use_ = 0;
  std::atomic<uint32_t> uses_ = 0;
  std::atomic<size_t> footprint_ = 0;

  void add_footprint(size_t bytes);
  friend class Entry;
};

/// What a look-up found, held for a run.
struct Found {
  std::shared_ptr<Variant> variant;  // null: nothing
  std::shared_ptr<const codegen::Plan> plan;
  explicit operator bool() const { return variant != nullptr; }
};

struct NextCapture {
  bool allowed = true;              // false: the limit is reached
  capture::DynamicFacts dynamic;    // empty: static
  std::vector<cache::Miss> misses;  // why no variant matched
};

/// One structure. Safe from many threads.
class Entry {
 public:
  /// The variant that starts there and matches.
  Found find(uint32_t call, capture::Stage stage, CallFacts facts, capture::Bindings& bindings, capture::Env& env) const;
  /// How to capture what find() did not find, and what to say about it.
  NextCapture plan_capture(const capture::Collected& collected, const std::vector<capture::FactOrigin>& origins,
                           const std::vector<capture::FactOrigin>& resumed_origins, uint32_t call, capture::Stage stage, CallFacts facts,
                           const Options& options) const;
  void add(std::shared_ptr<Variant> variant);
  /// False: it was gone before.
  bool remove(const Variant& variant);
  std::vector<std::shared_ptr<Variant>> variants() const;
  bool empty() const;

 private:
  mutable std::atomic<bool> limit_was_reached_ = false;
  std::vector<std::shared_ptr<Variant>> variants_;  // newest first: the dynamic one is asked first
};

}  // namespace hindcast::engine
