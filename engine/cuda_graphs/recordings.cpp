#include "engine/cuda_graphs/recordings.h"

#include "base/fork.h"
#include "base/format.h"
#include "engine/counters/stats_recorder.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace hindcast::engine {

/// All RecordedPlans of the process.
struct RecordedPlan::Registry {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};
  std::vector<std::weak_ptr<RecordedPlan>> all;
  std::atomic<size_t> bytes = 0;
  std::atomic<uint64_t> uses = 0;

  static Registry& of_process() {
    static constinit base::MadeOnce<Registry> registry;
    return registry.get();
  }
};

RecordedPlan::RecordedPlan(std::shared_ptr<const BackwardPlan> plan, std::shared_ptr<const Regions> regions,
                           const capture::Bindings& bindings)
    : plan_(std::move(plan)), found_(std::move(regions)), bindings_(bindings) {
  make_regions();
}

void RecordedPlan::make_regions() {
  for (const Region& region : found_->all) {
    const codegen::Backend* const backend = codegen::backend_of(region.device.type());
    if (backend != nullptr) regions_.push_back(std::make_unique<RecordedRegion>(region, *backend));
  }
  if (regions_.empty()) is_decided_.store(true, std::memory_order_relaxed);
}

std::shared_ptr<RecordedPlan> RecordedPlan::make(std::shared_ptr<const BackwardPlan> plan, std::shared_ptr<const Regions> regions,
                                                 const capture::Bindings& bindings) {
  std::shared_ptr<RecordedPlan> made(new RecordedPlan(std::move(plan), std::move(regions), bindings));
  Registry& registry = Registry::of_process();
  const std::lock_guard lock(registry.mutex);
  std::erase_if(registry.all, [](const auto& one) { return one.expired(); });
  registry.all.push_back(made);
  return made;
}

RecordedPlan::~RecordedPlan() { Registry::of_process().bytes -= bytes_; }

// Compares bits: -0 differs from 0, and NaN equals itself.
bool RecordedPlan::is_of(const capture::Bindings& bindings) const {
  const auto& floats = bindings.floats;
  return bindings_.ints == bindings.ints && bindings_.floats.size() == floats.size() &&
         (floats.empty() || std::memcmp(bindings_.floats.data(), floats.data(), floats.size() * sizeof(double)) == 0);
}

void RecordedPlan::leave() {
  try {
    std::vector<uint32_t> changed;
    for (const auto& region : regions_) changed.insert(changed.end(), region->changed_numbers().begin(), region->changed_numbers().end());
    if (!changed.empty()) cut_at(changed);
  } catch (const std::exception&) {  // out of memory: all steps run one by one
    forget();
    regions_.clear();
  }
  is_entered_.store(false, std::memory_order_release);
}

// Excludes the steps that read these scalars from regions; the remaining steps are observed and captured as before.
void RecordedPlan::cut_at(const std::vector<uint32_t>& numbers) {
  changing_.insert(changing_.end(), numbers.begin(), numbers.end());
  forget();
  regions_.clear();  // before found_, which they refer to
  found_ = std::make_shared<const Regions>(find_regions(*plan_, changing_));
  if (found_->all.empty()) stats_recorder().add_not_recorded(found_->why_not_one);
  make_regions();
}

RecordedRegion* RecordedPlan::region_at(uint32_t step) {
  const auto at = std::lower_bound(regions_.begin(), regions_.end(), step,
                                   [](const auto& region, uint32_t first) { return region->region().first < first; });
  return at != regions_.end() && (*at)->region().first == step ? at->get() : nullptr;
}

bool RecordedPlan::run(RecordedRegion& region, const RegionCall& call, size_t most_bytes, std::vector<Delivered>& delivered) {
  const uint64_t now = ++Registry::of_process().uses;
  last_use_ = now;
  const size_t before = region.bytes();
  bool is_done = false;
  {
    struct CountBytes {  // also when the launch throws
      RecordedPlan& plan;
      const RecordedRegion& region;
      const size_t before;
      ~CountBytes() { plan.count_bytes(before, region.bytes()); }
    } const count{*this, region, before};
    is_done = region.run(call, delivered);
  }
  if (is_done || !region.why_not().empty()) is_decided_.store(true, std::memory_order_relaxed);
  const size_t after = region.bytes();
  if (after > before && !make_room(this, most_bytes, now - std::min(now, kIdleLaunches))) {
    region.give_up(call, "Options::cuda_graph_bytes has no room for it", base::format("{} bytes", after));
    count_bytes(after, 0);
  }
  return is_done;
}

void RecordedPlan::count_bytes(size_t before, size_t after) {
  bytes_ += after - before;
  Registry::of_process().bytes += after - before;
}

// Other plans are destroyed outside the lock: no thread may wait for a device while holding it.
bool RecordedPlan::make_room(const RecordedPlan* for_one, size_t most_bytes, uint64_t used_before) {
  Registry& registry = Registry::of_process();
  while (registry.bytes > most_bytes) {
    std::vector<std::shared_ptr<RecordedPlan>> others;
    {
      const std::lock_guard lock(registry.mutex);
      for (const auto& one : registry.all) others.push_back(one.lock());
    }
    std::erase_if(others,
                  [&](const auto& one) { return !one || one.get() == for_one || one->bytes_ == 0 || one->last_use_ > used_before; });
    std::sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a->last_use_ < b->last_use_; });
    const auto oldest = std::find_if(others.begin(), others.end(), [](const auto& one) { return one->enter(); });
    if (oldest == others.end()) return false;
    (*oldest)->forget();
    (*oldest)->leave();
  }
  return true;
}

void RecordedPlan::forget() {
  for (const auto& region : regions_) region->forget();
  Registry::of_process().bytes -= bytes_.exchange(0);
}

std::string RecordedPlan::why_not_one() const {
  if (!found_->why_not_one.empty()) return found_->why_not_one;
  return regions_.empty() ? "no backend makes kernels for its device" : regions_[0]->why_not();
}

Recordings::PerSizes Recordings::of(const std::shared_ptr<const BackwardPlan>& plan, const capture::Bindings& bindings) {
  static constinit base::MadeOnce<base::ForkSafe<std::mutex>> mutex;
  std::vector<std::shared_ptr<RecordedPlan>> gone;  // evicted plans are destroyed after the lock is released
  std::shared_ptr<const BackwardPlan> old_plan;
  std::shared_ptr<const Regions> regions;
  bool goes_on = false;
  const auto find = [&]() -> std::shared_ptr<RecordedPlan> {
    if (plan_ != plan) return nullptr;
    const auto at = std::find_if(plans_.begin(), plans_.end(), [&](const auto& one) { return one->is_of(bindings); });
    if (at == plans_.end()) return nullptr;
    std::rotate(plans_.begin(), at, at + 1);
    return plans_.front();
  };
  {
    const std::lock_guard lock(mutex.get(base::ForkRank::Leaf));
    if (auto found = find()) return {std::move(found)};
    if (plan_ == plan) regions = regions_;
  }
  if (!regions) {
    regions = std::make_shared<const Regions>(find_regions(*plan));
    if (regions->all.empty()) stats_recorder().add_not_recorded(regions->why_not_one);
  }
  auto made = RecordedPlan::make(plan, regions, bindings);
  {
    const std::lock_guard lock(mutex.get(base::ForkRank::Leaf));
    if (auto found = find()) return {std::move(found)};
    if (plan_ != plan) {
      old_plan = std::exchange(plan_, plan);
      regions_.swap(regions);
      gone.swap(plans_);
      gone_undecided_ = 0;
    }
    plans_.insert(plans_.begin(), made);
    if (plans_.size() > kMostRecordedSizes) {
      gone.push_back(std::move(plans_.back()));
      plans_.pop_back();
      gone_undecided_ = gone.back()->is_decided() ? 0 : gone_undecided_ + 1;
      goes_on = gone_undecided_ > kMostOfAStart;
    }
  }
  if (!goes_on) return {std::move(made)};
  PerSizes found{std::move(made), "its sizes change from step to step"};
  stats_recorder().add_not_recorded(found.why_not);
  return found;
}

size_t RecordedPlan::trim() {
  const size_t before = bytes_of_all();
  make_room(nullptr, 0, Registry::of_process().uses);
  return before - std::min(before, bytes_of_all());
}

size_t RecordedPlan::bytes_of_all() { return Registry::of_process().bytes; }

}  // namespace hindcast::engine
