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
#include "capture/trace.h"
#include "codegen/plan.h"
#include "engine/options.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace hindcast::engine {

/// Facts of one call: of the collected nodes, and of what flows in at the start.
struct CallFacts {
  const capture::Facts& collected;
  const capture::Facts& resumed;
};

class Variant {
 public:
  Variant(uint32_t call, capture::Stage stage, CallFacts facts, capture::DynamicFacts dynamic, std::shared_ptr<const capture::Graph> graph);

  /// True if this capture is right for the facts; then `bindings` and `env` are filled for the run.
  bool matches(CallFacts facts, capture::Bindings& bindings, capture::Env& env) const;
  bool starts_at(uint32_t call, capture::Stage stage) const { return call == call_ && stage == stage_; }
  bool same_as(const Variant& other) const;
  bool is_dynamic() const { return !dynamic_.int_hints.empty() || !dynamic_.float_hints.empty(); }
  /// The best there is so far. Ask once a backward: it may change at any time.
  const codegen::Plan& plan() const {
    const codegen::Plan* fused = fused_.load(std::memory_order_acquire);
    return fused ? *fused : plan_;
  }
  const codegen::Plan& plan_as_captured() const { return plan_; }
  /// Backwards that look it up from now on run this plan of the same graph.
  void publish(std::unique_ptr<const codegen::Plan> fused) const;
  std::shared_ptr<const capture::Graph> shared_graph() const { return plan_.shared_graph(); }
  const capture::Facts& collected() const { return collected_; }
  const capture::Facts& resumed() const { return resumed_; }
  const capture::DynamicFacts& dynamic() const { return dynamic_; }

  std::vector<SegmentFunction> compiled;  // of the user's compiler; empty: ATen replay

 private:
  uint32_t call_;
  capture::Stage stage_;
  capture::Facts collected_, resumed_;
  capture::DynamicFacts dynamic_;
  std::vector<uint8_t> float_fact_;  // per collected fact: the symbol is a float
  codegen::Plan plan_;
  mutable std::unique_ptr<const codegen::Plan> fused_owner_;
  mutable std::atomic<const codegen::Plan*> fused_ = nullptr;

  friend class Entry;
};

struct NextCapture {
  bool allowed = true;              // false: the limit is reached
  capture::DynamicFacts dynamic;    // empty: static
  std::vector<cache::Miss> misses;  // why no variant matched
};

/// One structure. Safe from many threads.
class Entry {
 public:
  /// The variant that starts there and matches, or null.
  std::shared_ptr<const Variant> find(uint32_t call, capture::Stage stage, CallFacts facts, capture::Bindings& bindings,
                                      capture::Env& env) const;
  /// How to capture what find() did not find, and what to say about it.
  NextCapture plan_capture(const capture::Collected& collected, const std::vector<capture::FactOrigin>& origins,
                           const std::vector<capture::FactOrigin>& resumed_origins, uint32_t call, capture::Stage stage, CallFacts facts,
                           const Options& options) const;
  void add(std::shared_ptr<const Variant> variant);
  std::vector<std::shared_ptr<const Variant>> variants() const;

 private:
  mutable std::shared_mutex mutex_;
  mutable std::atomic<bool> limit_was_reached_ = false;
  std::vector<std::shared_ptr<const Variant>> variants_;  // newest first: the dynamic one is asked first
};

}  // namespace hindcast::engine
