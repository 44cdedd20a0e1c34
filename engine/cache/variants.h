#pragma once
// All captures of one structure.
//
// A *variant* is one capture with the facts it was made under. The first is static: all facts must be equal. If later only sizes or float
// scalars differ, a second one is captured in which some of them are symbols (engine/cache/dynamic_rule). The static variant stays.
//
// A *continuation* starts after a boundary (a hook, an opaque node) whose results differed from those at capture. It has variants by the
// same rule.

#include "cache/miss.h"
#include "capture/backward/trace.h"
#include "engine/cuda_graphs/recordings.h"
#include "engine/plan/backward_plan.h"
#include "engine/plan/plan_slot.h"
#include "hindcast/options.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace hindcast::engine {

/// Facts of one call: of the collected nodes, and of the gradients that flow in at the start.
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

  /// True if this capture is valid for the facts; `bindings` and `env` are then filled for the run.
  bool matches(CallFacts facts, capture::Bindings& bindings, capture::Env& env) const;
  bool starts_at(Start start) const { return start == start_; }
  bool same_as(const Variant& other) const;
  bool is_dynamic() const { return !dynamic_.int_hints.empty() || !dynamic_.float_hints.empty(); }
  const capture::Facts& collected() const { return collected_; }
  const capture::Facts& resumed() const { return resumed_; }
  PlanSlot& slot() { return slot_; }
  const PlanSlot& slot() const { return slot_; }

  /// Counts a use by call number `now`. Returns how many there were before; two concurrent uses may count as one.
  uint32_t use(uint64_t now);
  void made_by(uint64_t now) { last_use_.store(now, std::memory_order_relaxed); }
  uint64_t last_use() const { return last_use_.load(std::memory_order_relaxed); }

  std::vector<SegmentFunction> compiled;  // made by the user's compiler; empty: ATen replay
  Recordings recordings;                  // CUDA graphs of its best plan

 private:
  size_t own_bytes() const;

  Start start_;
  capture::Facts collected_, resumed_;
  capture::DynamicFacts dynamic_;
  capture::Evaluator evaluator_;  // of all expressions in the captured graph; a rewritten graph may need fewer
  PlanSlot slot_;
  std::atomic<uint64_t> last_use_ = 0;
  std::atomic<uint32_t> uses_ = 0;
};

/// The result of a lookup, kept alive for a run.
struct Found {
  std::shared_ptr<Variant> variant;  // nullptr for a miss
  std::shared_ptr<const BackwardPlan> plan;
  explicit operator bool() const { return variant != nullptr; }
  /// Replaces the best plan by the one that runs op by op, in the captured order.
  void use_plan_as_captured();
};

/// Where the facts of a call came from.
struct CallOrigins {
  const std::vector<capture::FactOrigin>& collected;
  const std::vector<capture::FactOrigin>& resumed;
};

struct NextCapture {
  bool allowed = true;              // false: the limit is reached
  capture::DynamicFacts dynamic;    // empty for a static one
  std::vector<cache::Miss> misses;  // why no variant matched
};

/// One structure. Safe from many threads.
class Entry {
 public:
  /// `unloads`: Collected::unloads.
  explicit Entry(uint64_t unloads = 0) : unloads_(unloads) {}
  /// True if code that the entry was made from has been unloaded since.
  bool is_older_than(uint64_t unloads) const { return unloads_ != 0 && unloads_ < unloads; }
  uint64_t unloads() const { return unloads_; }

  /// The variant that starts at `start` and matches the facts; empty if no variant does.
  Found find(Start start, CallFacts facts, capture::Bindings& bindings, capture::Env& env) const;
  /// True if a capture from the start was refused because of `limit`, and there still is no room for one.
  bool is_at_its_limit(size_t limit) const;
  /// After find() missed: whether and how to capture, and the reasons to log.
  NextCapture plan_capture(const capture::Collected& collected, CallOrigins origins, Start start, CallFacts facts,
                           const Options& options) const;
  void add(std::shared_ptr<Variant> variant);
  /// Returns false if it had been removed before.
  bool remove(const Variant& variant);
  std::vector<std::shared_ptr<Variant>> variants() const;
  bool empty() const;

 private:
  std::vector<std::shared_ptr<Variant>> starting_at(Start start) const;
  cache::Miss limit_reached(cache::Miss first, size_t limit) const;

  const uint64_t unloads_;
  mutable std::atomic<bool> limit_was_reached_ = false;
  std::vector<std::shared_ptr<Variant>> variants_;  // newest first, so that the dynamic variant is tried first
};

}  // namespace hindcast::engine
