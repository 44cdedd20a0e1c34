#include "engine/cuda_graphs/order_of_launches.h"

#include "base/fork.h"
#include "base/waits.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace hindcast::engine {
namespace {

struct DeviceState {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Background};
  std::optional<c10::Event> event;  // after the last launch
  std::optional<c10::Stream> stream;
};

struct ByIndex {
  bool operator()(c10::Device a, c10::Device b) const { return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index()); }
};

// Never destroyed: the driver may be unloaded earlier.
DeviceState& of(c10::Device device) {
  struct All {
    base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};
    std::map<c10::Device, std::unique_ptr<DeviceState>, ByIndex> states;
  };
  static constinit base::MadeOnce<All> made_once;
  All& all = made_once.get();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.states.find(device); found != all.states.end()) return *found->second;
  }
  auto made = std::make_unique<DeviceState>();
  const std::lock_guard lock(all.mutex);
  return *all.states.try_emplace(device, std::move(made)).first->second;
}

c10::Stream current(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

OrderOfLaunches::OrderOfLaunches(c10::Device device)
    : lock_(base::locked_without_interpreter<std::mutex>(of(device).mutex)), device_(device) {
  DeviceState& last = of(device);
  if (last.stream && *last.stream != current(device)) last.event->block(current(device));
}

OrderOfLaunches::~OrderOfLaunches() {
  DeviceState& last = of(device_);
  try {
    const c10::Stream stream = current(device_);
    if (!last.event) last.event.emplace(device_.type());
    last.event->record(stream);
    last.stream = stream;
  } catch (...) {  // a lost device reports its error at the next use
    last.stream.reset();
  }
}

}  // namespace hindcast::engine
