#include "capture/function/random_state.h"

#include "base/fork.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace hindcast::capture {
namespace {

// Taken before a generator's lock, which is LibTorch's: a fork waits for this one, so that no child inherits that one from a trace. Made
// when the library is loaded: a first trace that made it during a fork would wait for the fork, and the child for the trace.
base::ForkSafe<std::mutex>& reading_states = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);

}  // namespace

RandomState RandomState::of(c10::ArrayRef<at::Tensor> tensors) {
  RandomState state;
  state.add(at::globalContext().defaultGenerator(at::kCPU));
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu() || tensor.is_meta()) continue;
    try {
      state.add(at::globalContext().defaultGenerator(tensor.device()));
    } catch (const c10::Error&) {  // a device that draws no random numbers has no generator
    }
  }
  return state;
}

RandomState RandomState::now() const {
  RandomState state;
  for (const auto& [generator, before] : states_) state.add(generator);
  return state;
}

bool RandomState::is_same(const RandomState& other) const {
  return std::equal(states_.begin(), states_.end(), other.states_.begin(), other.states_.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.nbytes() == b.second.nbytes() &&
           std::memcmp(a.second.const_data_ptr(), b.second.const_data_ptr(), a.second.nbytes()) == 0;
  });
}

void RandomState::restore() const {
  for (auto [generator, before] : states_) {
    const std::lock_guard reading(reading_states);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(before);
  }
}

void RandomState::add(const at::Generator& generator) {
  const auto is_known = [&](const auto& one) { return one.first == generator; };
  if (std::any_of(states_.begin(), states_.end(), is_known)) return;
  at::Generator own = generator;
  const std::lock_guard reading(reading_states);
  const std::lock_guard lock(own.mutex());
  states_.emplace_back(own, own.get_state());
}

}  // namespace hindcast::capture
