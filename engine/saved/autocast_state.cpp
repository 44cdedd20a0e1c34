#include "engine/saved/autocast_state.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>

namespace hindcast::engine {

AutocastState AutocastState::now() {
  AutocastState state;
  const auto add = [&](c10::DeviceType device) {
    state.devices_.push_back({device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
  };
  add(at::kCPU);
  if (const auto accelerator = at::accelerator::getAccelerator()) add(*accelerator);
  state.caches_ = at::autocast::is_autocast_cache_enabled();
  return state;
}

void AutocastState::set() const {
  for (const DeviceState& one : devices_) {
    at::autocast::set_autocast_enabled(one.device, one.is_enabled);
    at::autocast::set_autocast_dtype(one.device, one.dtype);
  }
  at::autocast::set_autocast_cache_enabled(caches_);
}

AutocastState::Scope::Scope(const AutocastState& state) : before_(now()) {
  at::autocast::increment_nesting();
  state.set();
}

AutocastState::Scope::~Scope() {
  // Casts cached inside the scope have a history that ends with it.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  before_.set();
}

}  // namespace hindcast::engine
