#pragma once
// The best plan of one captured graph. Work in the background replaces it; a run holds the plan that it was given.

#include "base/fork.h"
#include "codegen/plan/plan.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <shared_mutex>

namespace hindcast::engine {

/// The lock of all slots, and of the lists that hold slots: a look-up that passes through a list of slots takes one lock, shared with
/// other look-ups. Who writes makes the new value before and destroys the old one behind the lock.
base::ForkSafe<std::shared_mutex>& plan_slots_mutex();
using SharedLook = std::shared_lock<std::shared_mutex>;

class PlanSlot {
 public:
  /// Starts with the plan that runs the graph as it was captured.
  explicit PlanSlot(std::shared_ptr<const capture::Graph> graph);
  ~PlanSlot();
  PlanSlot(const PlanSlot&) = delete;
  PlanSlot& operator=(const PlanSlot&) = delete;

  /// The best plan so far. `look` holds plan_slots_mutex().
  const std::shared_ptr<const codegen::Plan>& plan(const SharedLook& /*look*/) const { return plan_; }
  std::shared_ptr<const codegen::Plan> plan() const { return plan(SharedLook(plan_slots_mutex())); }

  /// Op by op as captured. It is not kept beside a better one until somebody asks for it.
  std::shared_ptr<const codegen::Plan> plan_as_captured();

  /// What was captured. The plan's own graph may be another: passes run over it.
  std::shared_ptr<const capture::Graph> graph() const;

  /// No other plan is under way.
  bool is_compiled() const { return is_compiled_.load(std::memory_order_relaxed); }
  /// The plan stays what it is: there will be no other one.
  void give_up() { is_compiled_.store(true, std::memory_order_relaxed); }

  /// Who asks from now on gets `better`. `graph` is the one that was captured, or a copy.
  void publish(std::shared_ptr<const capture::Graph> graph, std::shared_ptr<const codegen::Plan> better);

  /// What the slot's owner keeps beside it, and goes with it. Bytes.
  void add_owners_bytes(size_t bytes) { add_footprint(bytes); }
  /// Bytes that the slot and its owner keep.
  size_t footprint() const { return footprint_.load(std::memory_order_relaxed); }
  /// Of all slots that somebody holds.
  static size_t footprint_of_all();
  static size_t count_of_all();

 private:
  void add_footprint(size_t bytes);

  // Under plan_slots_mutex():
  std::shared_ptr<const capture::Graph> graph_;
  std::shared_ptr<const codegen::Plan> plan_, captured_plan_;  // the second may be null
  std::atomic<size_t> footprint_ = 0;
  std::atomic<bool> is_compiled_ = false;
};

}  // namespace hindcast::engine
