#pragma once
// The best plan so far of one captured graph. The background compiler replaces it; a run keeps the plan that it started with.

#include "base/fork.h"
#include "codegen/plan/plan.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <shared_mutex>

namespace hindcast::engine {

/// Guards all slots and the lists that hold slots, so that a lookup through a list takes one lock, shared with other lookups. Writers
/// create the new value before they take the lock, and destroy the old one after they release it.
base::ForkSafe<std::shared_mutex>& plan_slots_mutex();
using SharedLook = std::shared_lock<std::shared_mutex>;

class PlanSlot {
 public:
  /// Starts with the plan that runs the graph op by op, as captured.
  explicit PlanSlot(std::shared_ptr<const capture::Graph> graph);
  ~PlanSlot();
  PlanSlot(const PlanSlot&) = delete;
  PlanSlot& operator=(const PlanSlot&) = delete;

  /// The best plan so far. `look` holds plan_slots_mutex().
  const std::shared_ptr<const codegen::Plan>& plan(const SharedLook& /*look*/) const { return plan_; }
  std::shared_ptr<const codegen::Plan> plan() const { return plan(SharedLook(plan_slots_mutex())); }

  /// The plan that runs op by op, as captured. Once a better plan exists, this one is rebuilt on the first call.
  std::shared_ptr<const codegen::Plan> plan_as_captured();

  /// The captured graph. The plan's own graph may differ, since passes have rewritten it.
  std::shared_ptr<const capture::Graph> graph() const;

  /// True if no other plan will be published.
  bool is_compiled() const { return is_compiled_.load(std::memory_order_relaxed); }
  /// Keeps the current plan for good.
  void give_up() { is_compiled_.store(true, std::memory_order_relaxed); }

  /// Makes `better` the best plan. `graph` is the captured graph, or a copy of it.
  void publish(std::shared_ptr<const capture::Graph> graph, std::shared_ptr<const codegen::Plan> better);

  /// Counts bytes that the slot's owner keeps, and frees together with the slot.
  void add_owners_bytes(size_t bytes) { add_footprint(bytes); }
  /// Bytes that the slot and its owner keep.
  size_t footprint() const { return footprint_.load(std::memory_order_relaxed); }
  /// Sums over all slots alive in the process.
  static size_t footprint_of_all();
  static size_t count_of_all();

 private:
  void add_footprint(size_t bytes);

  // Under plan_slots_mutex():
  std::shared_ptr<const capture::Graph> graph_;
  std::shared_ptr<const codegen::Plan> plan_, captured_plan_;  // captured_plan_ may be nullptr
  std::atomic<size_t> footprint_ = 0;
  std::atomic<bool> is_compiled_ = false;
};

}  // namespace hindcast::engine
