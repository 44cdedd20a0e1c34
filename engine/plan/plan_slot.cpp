#include "base/fork.h"
#include "engine/plan/backward_plan.h"
#include "engine/plan/plan_slot.h"

#include <utility>

namespace hindcast::engine {
namespace {

struct Totals {
  std::atomic<size_t> footprint = 0, count = 0;
};
Totals& totals() {
  static constinit base::MadeOnce<Totals> totals;
  return totals.get();
}

size_t footprint_of(const std::shared_ptr<const capture::Graph>& graph, const codegen::Plan& plan, const codegen::Plan* captured) {
  return graph->footprint() + plan.footprint() + (plan.shared_graph() == graph ? 0 : plan.graph().footprint(graph.get())) +
         (captured != nullptr && captured != &plan ? captured->footprint() : 0);
}

}  // namespace

static base::ForkSafe<std::shared_mutex>& slots_of_plans = *new base::ForkSafe<std::shared_mutex>(base::ForkRank::Leaf);

base::ForkSafe<std::shared_mutex>& plan_slots_mutex() { return slots_of_plans; }

PlanSlot::PlanSlot(std::shared_ptr<const capture::Graph> graph) : graph_(std::move(graph)), plan_(plan_of(graph_)), captured_plan_(plan_) {
  add_footprint(footprint_of(graph_, *plan_, captured_plan_.get()));
  totals().count.fetch_add(1, std::memory_order_relaxed);
}

PlanSlot::~PlanSlot() {
  totals().footprint.fetch_sub(footprint(), std::memory_order_relaxed);
  totals().count.fetch_sub(1, std::memory_order_relaxed);
}

size_t PlanSlot::footprint_of_all() { return totals().footprint.load(std::memory_order_relaxed); }
size_t PlanSlot::count_of_all() { return totals().count.load(std::memory_order_relaxed); }

void PlanSlot::add_footprint(size_t bytes) {  // `bytes` may be negative: unsigned arithmetic wraps around
  footprint_.fetch_add(bytes, std::memory_order_relaxed);
  totals().footprint.fetch_add(bytes, std::memory_order_relaxed);
}

std::shared_ptr<const capture::Graph> PlanSlot::graph() const {
  const SharedLook look(plan_slots_mutex());
  return graph_;
}

std::shared_ptr<const codegen::Plan> PlanSlot::plan_as_captured() {
  std::shared_ptr<const capture::Graph> graph;
  {
    const SharedLook look(plan_slots_mutex());
    if (captured_plan_) return captured_plan_;
    graph = graph_;
  }
  auto made = plan_of(graph);
  const size_t bytes = made->footprint();
  const std::lock_guard lock(plan_slots_mutex());
  if (!captured_plan_) {
    captured_plan_ = std::move(made);
    add_footprint(bytes);
  }
  return captured_plan_;
}

void PlanSlot::publish(std::shared_ptr<const capture::Graph> graph, std::shared_ptr<const codegen::Plan> better) {
  const auto captured = better->is_as_captured() ? better : nullptr;
  const size_t bytes = footprint_of(graph, *better, captured.get());
  auto old_plan = better, old_captured = captured;
  {
    const std::lock_guard lock(plan_slots_mutex());
    graph_.swap(graph);
    plan_.swap(old_plan);
    captured_plan_.swap(old_captured);
    is_compiled_.store(true, std::memory_order_relaxed);
  }  // the old values are destroyed after the lock is released
  add_footprint(bytes - footprint_of(graph, *old_plan, old_captured.get()));
}

}  // namespace hindcast::engine
