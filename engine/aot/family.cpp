#include "engine/aot/family.h"

#include "base/log.h"
#include "engine/aot/choose_layout.h"
#include "engine/aot/fit.h"
#include "engine/aot/tell_once.h"

#include <algorithm>
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
  all_ = std::move(more);  // has all that the former had
}

void Family::remove(const Specialisation& specialisation) {
  auto fewer = std::make_shared<List>();
  std::shared_ptr<const List> former;  // destroyed after the lock is released: kernels may go with it
  const std::lock_guard lock(mutex_);
  for (const auto& each : *all_) {
    if (each.get() != &specialisation) fewer->push_back(each);
  }
  former = std::exchange(all_, std::move(fewer));
}

void Family::escaped(Specialisation& specialisation) {
  constexpr size_t kMost = 2;
  const size_t times = [&] {
    const std::lock_guard lock(mutex_);
    return ++escapes_;
  }();
  if (times <= kMost) {
    specialisation.drop();
    return remove(specialisation);
  }
  specialisation.give_up();
  tell_once(
      "a function runs as it is: it keeps a tensor that it makes, so that each call depends on the one before. Return that tensor, "
      "and give it as an argument");
}

Family::Sizes Family::sizes_for(const capture::Facts& row) const {
  std::shared_ptr<Specialisation> fitted;
  bool may_fit = false;
  {
    const std::lock_guard lock(mutex_);
    fitted = fitted_;
    may_fit = may_fit_;
  }
  if (fitted && fitted->values_of_symbols(row)) return Sizes::Plain;
  return may_fit ? Sizes::Free : Sizes::Pinned;
}

void Family::set_fit(std::shared_ptr<Specialisation> fitted, bool may_be_another) {
  const std::lock_guard lock(mutex_);
  may_fit_ = may_be_another;
  fitted_.swap(fitted);
}

void Family::learned(const Specialisation& specialisation, const std::shared_ptr<const Halves>& halves) {
  if (specialisation.is_exact()) {
    fit_to(specialisation, halves);
  } else if (!specialisation.is_dynamic()) {
    compare(specialisation, *halves);
  }
}

// The first two sizes: is there one program for both?
void Family::fit_to(const Specialisation& second, const std::shared_ptr<const Halves>& halves) {
  {
    const std::lock_guard lock(mutex_);
    if (!may_fit_ || fitted_) return;
  }
  if (options_.fw_compiler.function() || options_.bw_compiler.function()) return set_fit(nullptr, false);
  const auto known_sizes = all();  // lives as long as the loop does
  for (const auto& first : *known_sizes) {
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
      const auto fitted_halves = make_halves(std::move(fitted->joint), request);
      waiting->add(fitted_halves);
      choose_layout(waiting, fitted_halves, options_);
      HC_LOG(Aot, Info, "numbers of two programs are expressions of their sizes; a third size will tell");
      waiting->limit_to(*values);
      waiting->widen(second.symbols_at_capture());
      return set_fit(waiting, false);
    }
  }
  HC_LOG(Aot, Info, "programs at two sizes differ in more than what their sizes say: each size gets its own");
  set_fit(nullptr, false);
}

// The third, and every other that lies outside of what has been compared: between two sizes that gave one program lies no branch of the
// function's own, as a rule; beyond them there may be one.
void Family::compare(const Specialisation& other, const Halves& halves) {
  std::shared_ptr<Specialisation> fitted;
  {
    const std::lock_guard lock(mutex_);
    fitted = fitted_;
  }
  if (!fitted) return;
  const auto values = fitted->values_of_symbols(other.row());
  if (!values || halves.tangents != fitted->halves()->tangents) return;
  const bool is_right = fitted->is_alike_outside(other) &&
                        is_same_at({fitted->halves()->traced, fitted->returned()}, *values, {halves.traced, other.returned()});
  HC_LOG(Aot, Info, "another size {}", is_right ? "has the program that was fitted to two" : "has another program: it gets its own");
  if (!is_right) {
    if (!fitted->is_confirmed()) set_fit(nullptr, false);
    return;
  }
  fitted->widen(*values);
  remove(other);
  if (fitted->confirm()) add(fitted);
}

}  // namespace hindcast::engine
