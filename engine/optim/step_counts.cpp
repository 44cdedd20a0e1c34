#include "engine/optim/step_counts.h"

#include "capture/backward/facts.h"
#include "engine/optim/changed.h"

namespace hindcast::engine {
namespace {

double value_of(const at::Tensor& count) {
  return count.scalar_type() == at::kFloat ? *count.const_data_ptr<float>() : *count.const_data_ptr<double>();
}

void set_value(const at::Tensor& count, double value) {
  if (count.scalar_type() == at::kFloat) {
    *count.mutable_data_ptr<float>() = static_cast<float>(value);
  } else {
    *count.mutable_data_ptr<double>() = value;
  }
}

}  // namespace

std::string_view StepCounts::why_not(const at::Tensor& count) {
  const bool is_known = count.defined() && capture::is_plain(count) && !count.is_neg() && count.is_cpu() && count.numel() == 1 &&
                        (count.scalar_type() == at::kFloat || count.scalar_type() == at::kDouble);
  return is_known ? std::string_view() : "its steps are not counted in one floating point number on the CPU";
}

double StepCounts::count(const at::Tensor& count) {
  before_.emplace_back(&count, value_of(count));
  set_value(count, before_.back().second + 1);
  return value_of(count);
}

void StepCounts::take_back() {
  set_value(*before_.back().first, before_.back().second);
  before_.pop_back();
}

void StepCounts::take_all_back() {
  while (!before_.empty()) take_back();
}

void StepCounts::done() {
  for (const auto& [count, before] : before_) has_changed(*count);
  before_.clear();
}

}  // namespace hindcast::engine
