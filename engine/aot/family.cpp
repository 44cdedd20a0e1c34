#include "engine/aot/family.h"

#include "base/log.h"
#include "engine/aot/fit.h"

#include <utility>

namespace hindcast::engine {

std::shared_ptr<const Family::List> Family::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

void Family::add(const std::shared_ptr<Specialisation>& specialisation) {
  auto more = std::make_shared<List>();
  more->push_back(specialisation);
  const std::lock_guard lock(mutex_);
  more->insert(more->end(), all_->begin(), all_->end());
  all_ = std::move(more);
}

Family::Sizes Family::sizes() const {
  const std::lock_guard lock(mutex_);
  return sizes_;
}

void Family::set(Sizes sizes, std::shared_ptr<Specialisation> waiting) {
  const std::lock_guard lock(mutex_);
  sizes_ = sizes;
  waiting_.swap(waiting);
}

void Family::learned(const Specialisation& specialisation, const std::shared_ptr<const Halves>& halves) {
  if (specialisation.is_exact()) return fit_to(specialisation, halves);
  if (!specialisation.is_dynamic() && sizes() == Sizes::Plain) compare(specialisation, *halves);
}

// The first two sizes: is there one program for both?
void Family::fit_to(const Specialisation& second, const std::shared_ptr<const Halves>& halves) {
  if (sizes() != Sizes::Free || options_.fw_compiler.function() || options_.bw_compiler.function()) return set(Sizes::Pinned, nullptr);
  for (const auto& first : *all()) {
    if (first->is_dynamic() || !first->is_alike_outside(second)) continue;
    const auto values = second.values_of_symbols(first->row());
    if (!values) continue;
    for (const auto& known : first->all_halves()) {
      if (known->tangents != halves->tangents) continue;
      auto fitted = fit({known->traced, first->returned()}, *values, {halves->traced, second.returned()});
      if (!fitted) continue;
      const auto waiting = std::make_shared<Specialisation>(second, std::move(fitted->joint.graph->symbols), std::move(fitted->returned));
      HalvesRequest request{options_, second.lasting(), second.with_gradients(), nullptr, {}};
      request.tangent_facts = &halves->tangents;
      request.leaves = second.leaves();
      waiting->add(make_halves(std::move(fitted->joint), request));
      HC_LOG(Aot, Info, "numbers of two programs are expressions of their sizes; a third size will tell");
      return set(Sizes::Plain, waiting);
    }
  }
  HC_LOG(Aot, Info, "programs at two sizes differ in more than what their sizes say: each size gets its own");
  set(Sizes::Pinned, nullptr);
}

// The third.
void Family::compare(const Specialisation& third, const Halves& halves) {
  std::shared_ptr<Specialisation> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting = waiting_;
  }
  if (!waiting) return;
  const auto values = waiting->values_of_symbols(third.row());
  if (!values || halves.tangents != waiting->halves()->tangents) return;
  const bool is_right = waiting->is_alike_outside(third) &&
                        is_same_at({waiting->halves()->traced, waiting->returned()}, *values, {halves.traced, third.returned()});
  HC_LOG(Aot, Info, "a third size {}", is_right ? "confirms the program of the two" : "has another program: each size gets its own");
  set(Sizes::Pinned, nullptr);
  if (is_right) add(waiting);
}

}  // namespace hindcast::engine
