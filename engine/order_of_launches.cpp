#include "engine/order_of_launches.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <optional>

namespace hindcast::engine {
namespace {

struct Last {
  c10::Event event;  // behind the last launch
  c10::Stream stream;
};

struct State {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Background};
  std::map<c10::Device, Last, bool (*)(c10::Device, c10::Device)> last{
      [](c10::Device a, c10::Device b) { return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index()); }};
};
// Never destroyed: a driver may be gone before.
State& state() {
  static auto* state = new State;
  return *state;
}

c10::Stream current(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

OrderOfLaunches::OrderOfLaunches(c10::Device device) : lock_(state().mutex), device_(device) {
  const auto last = state().last.find(device);
  if (last != state().last.end() && last->second.stream != current(device)) last->second.event.block(current(device));
}

OrderOfLaunches::~OrderOfLaunches() {
  auto& last = state().last;
  try {
    const c10::Stream stream = current(device_);
    const auto at = last.try_emplace(device_, Last{c10::Event(device_.type()), stream}).first;
    at->second.event.record(stream);
    at->second.stream = stream;
  } catch (...) {  // a device that is lost says so to whoever uses it next
    last.erase(device_);
  }
}

}  // namespace hindcast::engine
