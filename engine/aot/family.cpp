#include "engine/aot/family.h"

#include "base/log.h"
#include "capture/function/kept_tensors.h"
#include "engine/aot/choose_layout.h"
#include "engine/aot/fit.h"
#include "engine/aot/fit_data_sizes.h"
#include "engine/aot/warn_once.h"

#include <algorithm>
#include <utility>

namespace hindcast::engine {

std::shared_ptr<const Family::List> Family::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

void Family::add(const std::shared_ptr<Specialisation>& specialisation) {
  auto more = std::make_shared<List>();
  std::shared_ptr<const List> former;  // destroyed after the lock is released, since that may free kernels
  more->push_back(specialisation);
  size_t waiting = specialisation->waits() ? 1 : 0;
  const std::lock_guard lock(mutex_);
  for (const auto& each : *all_) {
    if (!each->waits() || ++waiting <= options_.limit) more->push_back(each);
  }
  former = std::exchange(all_, std::move(more));
}

size_t Family::programs() const {
  const auto known = all();
  return static_cast<size_t>(std::count_if(known->begin(), known->end(), [](const auto& each) { return !each->waits(); }));
}

void Family::remove(const Specialisation& specialisation) {
  auto fewer = std::make_shared<List>();
  std::shared_ptr<const List> former;  // destroyed after the lock is released, since that may free kernels
  const std::lock_guard lock(mutex_);
  for (const auto& each : *all_) {
    if (each.get() != &specialisation) fewer->push_back(each);
  }
  former = std::exchange(all_, std::move(fewer));
}

bool Family::may_trace_for_data_sizes() {
  const std::lock_guard lock(mutex_);
  return traces_for_data_sizes_ < options_.limit && ++traces_for_data_sizes_ > 0;
}

void Family::note_late_find(const std::shared_ptr<Specialisation>& specialisation) {
  with_other_data_sizes_.end();
  const std::lock_guard lock(mutex_);
  const bool again = found_late_.lock() == specialisation;
  found_late_ = specialisation;
  if (!again) return;
  auto list = std::make_shared<List>(*all_);  // shares all elements, so nothing is destroyed under the lock
  const auto place = std::find(list->begin(), list->end(), specialisation);
  if (place != list->end()) std::rotate(list->begin(), place, place + 1);
  all_ = std::move(list);
}

bool Family::note_escape() {
  constexpr size_t kMost = 2;
  const std::lock_guard lock(mutex_);
  return ++escapes_ <= kMost;
}

void Family::on_escape(Specialisation& specialisation) {
  if (note_escape()) {
    specialisation.drop();
    return remove(specialisation);
  }
  specialisation.give_up();
  note_eager(capture::kKeepsATensor);
}

Family::Sizes Family::sizes_for(const capture::Facts& row) const {
  std::shared_ptr<Specialisation> fitted;
  bool may_fit = false;
  {
    const std::lock_guard lock(mutex_);
    if (wants_plain_) return Sizes::Plain;
    fitted = fitted_;
    may_fit = may_fit_;
  }
  if (fitted && fitted->values_of_symbols(row)) return Sizes::Plain;
  return may_fit ? Sizes::Free : Sizes::Pinned;
}

void Family::set_fit(std::shared_ptr<Specialisation> fitted, bool may_be_another) {
  const std::lock_guard lock(mutex_);
  may_fit_ = may_be_another;
  is_fit_confirmed_ = false;
  fitted_.swap(fitted);
}

bool Family::confirm(const std::shared_ptr<Specialisation>& fitted) {
  const std::lock_guard lock(mutex_);
  return fitted_ == fitted && !std::exchange(is_fit_confirmed_, true);
}

void Family::refute(const std::shared_ptr<Specialisation>& fitted) {
  std::shared_ptr<Specialisation> former;  // destroyed after the lock is released, since that may free kernels
  const std::lock_guard lock(mutex_);
  if (fitted_ != fitted || is_fit_confirmed_) return;
  former = std::move(fitted_);
  may_fit_ = ++refuted_ < kMostRefuted;  // such as a fit to sizes so small that a value has one element
}

void Family::on_programs(const Specialisation& specialisation) {
  if (!specialisation.is_dynamic()) {
    const std::lock_guard lock(mutex_);
    wants_plain_ = false;
  }
  if (specialisation.is_exact() && specialisation.programs().whole()) fit_to(specialisation);
}

// ATen treats sizes 0 and 1 specially, so programs with these sizes cannot be compared with others.
bool Family::may_be_compared(const Specialisation& second, const std::vector<int64_t>& values) {
  const std::vector<int64_t> others = second.symbols_at_capture();
  for (size_t s = 0; s < values.size(); ++s) {
    if (values[s] != others[s] && std::min(values[s], others[s]) < 2) return false;
  }
  return true;
}

// Tries to fit one program to the first two sizes.
void Family::fit_to(const Specialisation& second) {
  {
    const std::lock_guard lock(mutex_);
    if (!may_fit_ || fitted_) return;
  }
  if (options_.fw_compiler.function() || options_.bw_compiler.function()) return set_fit(nullptr, false);
  const auto known_sizes = all();  // keeps the list alive during the loop
  bool has_degenerate = false;
  for (const auto& first : *known_sizes) {
    if (first->is_dynamic() || !first->has_same_outside_tensors(second) || !first->programs().whole()) continue;
    const auto values = second.values_of_symbols(first->row());
    if (!values) continue;
    const bool are_alike = have_data_sizes_alike(*first->programs().whole()->traced.graph, *second.programs().whole()->traced.graph);
    if (!are_alike || !may_be_compared(second, *values)) {
      has_degenerate = true;
      continue;
    }
    has_degenerate = false;
    const auto fitted = fit(*first, second, *values, has_degenerate);
    if (!fitted) continue;
    HC_LOG(Aot, Info, "numbers of two programs are expressions of their sizes; a third size will tell");
    fitted->prove(*values);
    fitted->prove(second.symbols_at_capture());
    return set_fit(fitted, false);
  }
  if (has_degenerate) {
    const std::lock_guard lock(mutex_);
    wants_plain_ = true;
    return;
  }
  HC_LOG(Aot, Info, "programs at two sizes differ in more than what their sizes say: each size gets its own");
  set_fit(nullptr, false);
}

// Returns nullptr if no common program exists.
std::shared_ptr<Specialisation> Family::fit(const Specialisation& first, const Specialisation& second, const std::vector<int64_t>& values,
                                            bool& is_too_small) const {
  const bool infers = options_.dynamic == Dynamic::Inferred;
  const auto fit_one = [&](const ProgramPair& known, const ProgramPair& other) {
    return engine::fit({known.traced, first.returned()}, values, {other.traced, second.returned()}, infers, is_too_small);
  };
  const auto whole = second.programs().whole(), whole_of_first = first.programs().whole();
  if (whole->tangents != whole_of_first->tangents) return nullptr;
  // A fitted program has no second derivatives then, which one of the calls was asked for.
  const SecondOrder &order = whole->second_order, &order_of_first = whole_of_first->second_order;
  if (order.has_own_joint && (order.was_asked_for || order_of_first.was_asked_for)) return nullptr;
  auto program = fit_one(*whole_of_first, *whole);
  if (!program) return nullptr;
  const auto fitted =
      std::make_shared<Specialisation>(second, std::move(program->joint.graph->symbols), std::move(program->returned), infers);
  PairRequest request{options_, second.lasting(), second.with_gradients(), whole->tangents, {}};
  request.leaves = second.leaves();
  request.is_for_others = second.programs().all().size() > 1;
  request.why_no_second_order =
      order.has_own_joint ? "its formulas differ in grad mode, and its sizes were inferred from several calls" : order.why_not;
  const auto pair = compile_pair(std::move(program->joint), request);
  std::vector<std::shared_ptr<const ProgramPair>> all = {pair};
  for (const auto& other : second.programs().all()) {
    for (const auto& known : first.programs().all()) {
      if (other->whole == nullptr || !other->is_recorded() || !known->is_recorded() || other->tangents != known->tangents) continue;
      auto beside = fit_one(*known, *other);
      if (!beside) continue;
      request.tangents = other->tangents;
      if (auto made = make_backward_beside(pair, std::move(beside->joint), request)) all.push_back(std::move(made));
    }
  }
  for (const auto& other : second.programs().all()) {
    if (other->whole == nullptr || other->is_recorded() || !other->wants.empty()) continue;
    std::vector<bool> flows;
    for (const capture::Facts& tangent : other->tangents) flows.push_back(tangent != tangent_facts({}));
    request.tangents = other->tangents;
    all.push_back(make_backward_of_some(pair, flows, {}, request));
  }
  ensure_backward(all, request);
  fitted->programs().add(std::move(all));
  choose_layout(fitted, pair, options_);
  return fitted;
}

// The function may branch on a size that it reads as a plain number, so a fit at two sizes is no proof for a third.
bool Family::proves_a_fit(const Specialisation& other, const capture::Joint& joint, const std::vector<capture::Facts>& tangents) {
  std::shared_ptr<Specialisation> fitted;
  {
    const std::lock_guard lock(mutex_);
    fitted = fitted_;
  }
  if (!fitted || other.is_dynamic()) return false;
  const auto values = fitted->values_of_symbols(other.row());
  const auto whole = fitted->programs().whole();
  if (!values || tangents != whole->tangents || !have_data_sizes_alike(*whole->traced.graph, *joint.graph)) return false;
  const bool is_right =
      fitted->has_same_outside_tensors(other) && is_same_at({whole->traced, fitted->returned()}, *values, {joint, other.returned()});
  HC_LOG(Aot, Info, "another size {}", is_right ? "has the program that was fitted to two" : "has another program: it gets its own");
  if (!is_right) {
    refute(fitted);
    return false;
  }
  fitted->prove(*values);
  remove(other);
  if (confirm(fitted)) add(fitted);
  return true;
}

}  // namespace hindcast::engine
