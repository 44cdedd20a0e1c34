#include "codegen/cuda/machine.h"

#include "codegen/cuda/card.h"
#include "codegen/cuda/driver.h"
#include "codegen/cuda/nvrtc.h"
#include "base/check.h"
#include "base/fork.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

namespace hindcast::codegen::cuda {
namespace {

constinit std::atomic<const Machine*> installed = nullptr;

struct FoundCard {
  std::unique_ptr<const Machine> card;
  std::string why_not;
};

const FoundCard& the_card(const Driver& driver) {
  static constinit base::MadeOnce<const FoundCard> found;
  return found.by([&] {
    FoundCard made;
    if (const Nvrtc* nvrtc = Nvrtc::get(&made.why_not)) made.card = Card::open(driver, *nvrtc, &made.why_not);
    return made;
  });
}

const Machine* look_for_card(std::string& why_not) {
  // The results of these two checks are not cached: LibTorch's CUDA library may be loaded later. And hindcast must not initialise the
  // driver, since a process that has done so cannot use CUDA in its forks.
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
    why_not = "LibTorch is here without its part for CUDA: libtorch_cuda.so is not loaded";
    return nullptr;
  }
  const Driver* const driver = Driver::get(&why_not);
  if (driver == nullptr) return nullptr;
  if (!driver->initialised()) {
    why_not = "CUDA is not initialised in this process";
    return nullptr;
  }
  const FoundCard& found = the_card(*driver);
  if (!found.card) why_not = found.why_not;
  return found.card.get();
}

}  // namespace

std::string Machine::why_not_recorded(c10::Device device) const { return base::format("work on {} is not recorded", device.str()); }

std::unique_ptr<Recording> Machine::record(c10::Device device, c10::function_ref<void()> /*give*/) const {
  HC_UNSUPPORTED("{}", why_not_recorded(device));
}

const Machine* machine(std::string* why_not) {
  if (const Machine* const here = installed.load(std::memory_order_acquire)) return here;
  static std::atomic<const Machine*> card = nullptr;
  if (const Machine* const here = card.load(std::memory_order_acquire)) return here;
  std::string reason;
  const Machine* const here = look_for_card(reason);
  if (here != nullptr) card.store(here, std::memory_order_release);
  if (here == nullptr && why_not != nullptr) *why_not = std::move(reason);
  return here;
}

void install_machine(const Machine& machine) {
  const Machine* none = nullptr;
  HC_CHECK(installed.compare_exchange_strong(none, &machine), "a machine is installed already");
}

const Machine* installed_machine() { return installed.load(std::memory_order_acquire); }

}  // namespace hindcast::codegen::cuda
