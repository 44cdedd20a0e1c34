#pragma once
// All captures of one structure.
//
// A *variant* is one capture with the facts it was made under. The first is static: every fact must be as it was. When only
// sizes or float scalars changed since, a second one is made in which some of them are symbols (engine/dynamic_rule). The static
// variant stays.
//
// Variants of a *continuation* start behind a boundary (a hook, an opaque node) whose results were not those of the
// capture; the same rule holds for them.

#include "cache/miss.h"
#include "capture/backward/trace.h"
#include "engine/backward_plan.h"
#include "engine/options.h"
#include "engine/plan_slot.h"
#include "engine/recordings.h"

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

/// Where in a backward a capture starts.
struct Start {
  uint32_t call = 0;
  capture::Stage stage = capture::Stage::NodeStart;
  bool operator==(const Start&) const = default;
};

/// One capture.
class Variant {
 public:
  Variant(Start start, CallFacts facts, capture::DynamicFacts dynamic, std::shared_ptr<const capture::Graph> graph);

  /// True if this capture is right for the facts; then `bindings` and `env` are filled for the run.
  bool matches(CallFacts facts, capture::Bindings& bindings, capture::Env& env) const;
  bool starts_at(Start start) const { return start == start_; }
  bool same_as(const Variant& other) const;
  bool is_dynamic() const { return !dynamic_.int_hints.empty() || !dynamic_.float_hints.empty(); }
  const capture::Facts& collected() const { return collected_; }
  const capture::Facts& resumed() const { return resumed_; }
  PlanSlot& slot() { return slot_; }
  const PlanSlot& slot() const { return slot_; }

  /// Call number `now` found it. How many did before; two threads at once may count as one.
  uint32_t use(uint64_t now);
  void made_by(uint64_t now) { last_use_.store(now, std::memory_order_relaxed); }
  uint64_t last_use() const { return last_use_.load(std::memory_order_relaxed); }

  std::vector<SegmentFunction> compiled;  // of the user's compiler; empty: ATen replay
  Recordings recordings;                  // of its best plan

 private:
  size_t own_bytes() const;

  Start start_;
  capture::Facts collected_, resumed_;
  capture::DynamicFacts dynamic_;
  capture::Evaluator evaluator_;  // of all that the captured graph needs; a graph behind passes may need less
  PlanSlot slot_;
  std::atomic<uint64_t> last_use_ = 0;
  std::atomic<uint32_t> uses_ = 0;
};

/// What a look-up found, held for a run.
struct Found {
  std::shared_ptr<Variant> variant;  // null: nothing
  std::shared_ptr<const BackwardPlan> plan;
  explicit operator bool() const { return variant != nullptr; }
  /// From the best plan to the one that runs op by op, in the order of the capture.
  void take_plan_as_captured();
};

/// Where the facts of a call came from.
struct CallOrigins {
  const std::vector<capture::FactOrigin>& collected;
  const std::vector<capture::FactOrigin>& resumed;
};

struct NextCapture {
  bool allowed = true;              // false: the limit is reached
  capture::DynamicFacts dynamic;    // empty: static
  std::vector<cache::Miss> misses;  // why no variant matched
};

/// One structure. Safe from many threads.
class Entry {
 public:
  /// Collected::unloads.
  explicit Entry(uint64_t unloads = 0) : unloads_(unloads) {}
  /// It is of code that was unloaded since.
  bool is_older_than(uint64_t unloads) const { return unloads_ != 0 && unloads_ < unloads; }
  uint64_t unloads() const { return unloads_; }

  /// The variant that starts there and matches.
  Found find(Start start, CallFacts facts, capture::Bindings& bindings, capture::Env& env) const;
  /// A capture from the start was asked for when there were as many as `limit` allows, and there still are.
  bool is_at_its_limit(size_t limit) const;
  /// How to capture what find() did not find, and what to say about it.
  NextCapture plan_capture(const capture::Collected& collected, CallOrigins origins, Start start, CallFacts facts,
                           const Options& options) const;
  void add(std::shared_ptr<Variant> variant);
  /// False: it was gone before.
  bool remove(const Variant& variant);
  std::vector<std::shared_ptr<Variant>> variants() const;
  bool empty() const;

 private:
  std::vector<std::shared_ptr<Variant>> starting_at(Start start) const;
  cache::Miss limit_reached(cache::Miss first, size_t limit) const;

  const uint64_t unloads_;
  mutable std::atomic<bool> limit_was_reached_ = false;
  std::vector<std::shared_ptr<Variant>> variants_;  // newest first: the dynamic one is asked first
};

}  // namespace hindcast::engine
