#include "engine/diagnosis/trace/run_records.h"

#include "base/fork.h"
#include "base/trace.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>

namespace hindcast::engine {
namespace {

using base::JsonObject;
using codegen::Plan;
using codegen::Step;

struct StepSum {
  uint64_t calls = 0;
  double us = 0, bytes = 0;
};

// The runs of one plan so far.
struct PlanRuns {
  // A plan is freed when a better one replaces it, and a plan of another graph may then have its address.
  std::weak_ptr<const capture::Graph> graph;
  bool as_captured = false;
  uint32_t number = 0;
  uint64_t runs = 0, next_record = 1;
  double us = 0, least_us = 0;
  std::vector<StepSum> steps;

  bool is_of(const Plan& plan) const {
    return graph.lock() == plan.shared_graph() && as_captured == plan.is_as_captured() && steps.size() == plan.steps().size();
  }
};

class AllRuns {
 public:
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};

  PlanRuns* find(const Plan& plan) {
    const auto found = by_graph_.find(plan.graph().id);
    return found != by_graph_.end() && found->second.is_of(plan) ? &found->second : nullptr;
  }
  PlanRuns& add(const Plan& plan) {
    constexpr size_t kMost = 1024;  // graphs; with more, all counts start again
    if (by_graph_.size() > kMost) by_graph_.clear();
    return by_graph_[plan.graph().id] = {.graph = plan.shared_graph(),
                                         .as_captured = plan.is_as_captured(),
                                         .number = plans_++,
                                         .steps = std::vector<StepSum>(plan.steps().size())};
  }

 private:
  std::map<uint32_t, PlanRuns> by_graph_;
  uint32_t plans_ = 0;
};
AllRuns& all_runs() {
  static constinit base::MadeOnce<AllRuns> runs;
  return runs.get();
}

void record_plan(const Plan& plan, uint32_t number, std::string (*name_of)(const Step& step, const capture::Graph& graph)) {
  const auto& graph = plan.graph();
  std::vector<std::string> names;
  std::vector<uint32_t> instrs, origins;
  for (const Step& step : plan.steps()) {
    names.push_back(name_of(step, graph));
    instrs.push_back(step.instr);
    origins.push_back(step.origin);
  }
  const codegen::Backend* const backend = codegen::backend_of(graph);
  JsonObject head, body;
  head.add("graph", graph.id).add("plan", number).add("steps", plan.steps().size()).add("as_captured", plan.is_as_captured());
  if (backend != nullptr) head.add("copy_bytes_per_us", backend->copy_bandwidth());
  body.add("names", names).add("instrs", instrs).add("origins", origins).add("nodes", graph.origins);
  base::write_record("plan", std::move(head), &body);
}

void add_laps(PlanRuns& runs, const Plan& plan, const std::vector<Lap>& laps) {
  double us = 0;
  for (const Lap& lap : laps) {
    StepSum& sum = runs.steps[static_cast<size_t>(lap.step - plan.steps().data())];
    sum.calls += 1;
    sum.us += lap.us;
    sum.bytes += lap.bytes;
    us += lap.us;
  }
  runs.runs += 1;
  runs.us += us;
  runs.least_us = runs.runs == 1 ? us : std::min(us, runs.least_us);
}

void record_means(uint32_t graph, const PlanRuns& runs, const std::vector<HeldBytes>& held) {
  const auto mean = [](double sum, uint64_t calls) { return calls == 0 ? 0 : sum / static_cast<double>(calls); };
  std::vector<double> us, bytes, held_behind, held_bytes;
  for (const StepSum& step : runs.steps) {
    us.push_back(mean(step.us, step.calls));
    bytes.push_back(mean(step.bytes, step.calls));
  }
  for (const HeldBytes& point : held) {
    held_behind.push_back(static_cast<double>(point.step));
    held_bytes.push_back(point.bytes);
  }
  JsonObject head, body;
  head.add("graph", graph).add("plan", runs.number).add("runs", runs.runs).add("us", mean(runs.us, runs.runs));
  head.add("least_us", runs.least_us);
  if (!held.empty()) head.add("peak", *std::max_element(held_bytes.begin(), held_bytes.end()));
  body.add("us", us).add("bytes", bytes).add("held_behind", held_behind).add("held", held_bytes);
  base::write_record("times", std::move(head), &body);
}

}  // namespace

double held_bytes(const codegen::Slots& slots) {
  std::unordered_set<const c10::StorageImpl*> seen;
  double bytes = 0;
  for (const at::Tensor& tensor : slots) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    if (seen.insert(storage).second) bytes += static_cast<double>(storage->nbytes());
  }
  return bytes;
}

bool wants_held_bytes(const Plan& plan) {
  AllRuns& all = all_runs();
  const std::lock_guard lock(all.mutex);
  const PlanRuns* const runs = all.find(plan);
  return runs == nullptr || runs->runs + 1 >= runs->next_record;
}

void record_run(const Plan& plan, const std::vector<Lap>& laps, const std::vector<HeldBytes>& held,
                std::string (*name_of)(const Step& step, const capture::Graph& graph)) {
  if (laps.empty()) return;
  AllRuns& all = all_runs();
  std::optional<PlanRuns> record;
  {
    const std::lock_guard lock(all.mutex);
    PlanRuns* runs = all.find(plan);
    if (runs == nullptr) runs = &all.add(plan);
    add_laps(*runs, plan, laps);
    if (runs->runs < runs->next_record) return;
    runs->next_record = runs->runs + runs->runs / 2 + 1;
    record = *runs;
  }
  if (record->runs == 1) record_plan(plan, record->number, name_of);
  record_means(plan.graph().id, *record, held);
}

}  // namespace hindcast::engine
