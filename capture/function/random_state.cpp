#include "capture/function/random_state.h"

#include <ATen/Context.h>

#include <algorithm>
#include <mutex>

namespace hindcast::capture {

RandomState RandomState::of(c10::ArrayRef<at::Tensor> tensors) {
  RandomState state;
  state.add(at::globalContext().defaultGenerator(at::kCPU));
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && !tensor.is_cpu() && !tensor.is_meta()) state.add(at::globalContext().defaultGenerator(tensor.device()));
  }
  return state;
}

RandomState RandomState::now() const {
  RandomState state;
  for (const auto& [generator, before] : states_) state.add(generator);
  return state;
}

void RandomState::restore() const {
  for (auto [generator, before] : states_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(before);
  }
}

void RandomState::add(const at::Generator& generator) {
  const auto is_known = [&](const auto& one) { return one.first == generator; };
  if (std::any_of(states_.begin(), states_.end(), is_known)) return;
  at::Generator own = generator;
  const std::lock_guard lock(own.mutex());
  states_.emplace_back(own, own.get_state());
}

}  // namespace hindcast::capture
