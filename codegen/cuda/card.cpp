#include "codegen/cuda/card.h"

#include "base/format.h"
#include "base/log.h"
#include "codegen/cuda/card_recording.h"
#include "codegen/cuda/entry.h"
#include "codegen/cuda/graph_library.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <unistd.h>

#include <algorithm>
#include <optional>

namespace hindcast::codegen::cuda {
namespace {

// CUdevice_attribute
constexpr int kThreadsOfBlock = 1, kSharedBytesOfBlock = 8, kMultiprocessors = 16, kThreadsOfMultiprocessor = 39;
constexpr int kRegistersOfMultiprocessor = 82, kMostSharedBytesOfBlock = 97;
// CUfunction_attribute
constexpr int kStaticSharedBytes = 1, kRegisters = 4, kMostDynamicSharedBytes = 8;
constexpr int kMajorOfCapability = 75, kMinorOfCapability = 76;

int attribute(const Driver& driver, int which, int device) {
  int value = 0;
  HC_CALL(driver, cuDeviceGetAttribute, &value, which, device);
  return value;
}

/// The newest architecture known to NVRTC whose code runs on a card of this capability: the card's own, or an older one of its generation.
/// 0 if NVRTC knows no such architecture.
int architecture_for(int capability, const std::vector<int>& known) {
  int best = 0;
  for (const int architecture : known) {
    if (architecture / 10 == capability / 10 && architecture <= capability) best = std::max(best, architecture);
  }
  return best;
}

/// While a thread captures a CUDA graph, other threads may not load code, unless they use the relaxed capture mode, as this class does.
class BesideCaptures {
 public:
  explicit BesideCaptures(const Driver& driver) : driver_(driver) { exchange(); }
  ~BesideCaptures() { exchange(); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  // Errors are ignored: the load then fails too, and reports why.
  void exchange() { driver_.call().cuThreadExchangeStreamCaptureMode(&mode_); }

  const Driver& driver_;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
};

const c10::impl::DeviceGuardImplInterface& torch() { return *c10::impl::getDeviceGuardImpl(c10::kCUDA); }
void* current_stream(c10::Device device) { return torch().getStreamNativeHandle(torch().getStream(device)); }

}  // namespace

class Card::CurrentContext {
 public:
  CurrentContext(const Driver& driver, void* context) : driver_(driver) {
    HC_CALL(driver, cuCtxGetCurrent, &former_);
    HC_CALL(driver, cuCtxSetCurrent, context);
  }
  ~CurrentContext() { driver_.call().cuCtxSetCurrent(former_); }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  void* former_ = nullptr;
};

class LoadedLibrary final : public Module {
 public:
  LoadedLibrary(const Card& card, std::string_view object) : card_(card), process_(getpid()) {
    const BesideCaptures beside(card.driver_);
    HC_CALL(card.driver_, cuLibraryLoadData, &library_, object.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  // Unloading waits for running kernels. Skipped in a forked child, which has no context, and when the process ends.
  ~LoadedLibrary() override {
    if (getpid() != process_ || is_kept_.load(std::memory_order_relaxed)) return;
    const BesideCaptures beside(card_.driver_);
    card_.driver_.call().cuLibraryUnload(library_);
  }

  void* function(const char* name) const override {
    const BesideCaptures beside(card_.driver_);
    void* kernel = nullptr;
    card_.driver_.check(card_.driver_.call().cuLibraryGetKernel(&kernel, library_, name), "cuLibraryGetKernel", name);
    card_.prepare(kernel, name);
    return kernel;
  }
  int registers(void* function) const override { return card_.registers_of(function); }
  void keep() const override { is_kept_.store(true, std::memory_order_relaxed); }

 private:
  const Card& card_;
  const pid_t process_;
  void* library_ = nullptr;
  mutable std::atomic<bool> is_kept_ = false;
};

std::unique_ptr<const Card> Card::open(const Driver& driver, const Nvrtc& nvrtc, std::string* why_not) {
  const auto refuse = [&](std::string sentence) {
    if (why_not != nullptr) *why_not = std::move(sentence);
    return nullptr;
  };
  try {
    int count = 0;
    HC_CALL(driver, cuDeviceGetCount, &count);
    if (count <= 0) return refuse("The NVIDIA driver has no device");
    std::unique_ptr<Card> card(new Card(driver, nvrtc, static_cast<size_t>(count)));
    for (int i = 0; i < count; ++i) {
      One& one = card->cards_[static_cast<size_t>(i)];
      HC_CALL(driver, cuDeviceGet, &one.device, i);
      one.capability = 10 * attribute(driver, kMajorOfCapability, one.device) + attribute(driver, kMinorOfCapability, one.device);
    }
    const int device = card->cards_.front().device, capability = card->cards_.front().capability;
    const int architecture = architecture_for(capability, nvrtc.architectures());
    if (architecture == 0)
      return refuse(
          base::format("{} compiles for no card of compute capability {}.{}", nvrtc.identity(), capability / 10, capability % 10));
    card->limits_ = {.multiprocessors = attribute(driver, kMultiprocessors, device),
                     .threads_of_multiprocessor = attribute(driver, kThreadsOfMultiprocessor, device),
                     .threads_of_block = attribute(driver, kThreadsOfBlock, device),
                     .shared_bytes = attribute(driver, kSharedBytesOfBlock, device),
                     .most_shared_bytes = attribute(driver, kMostSharedBytesOfBlock, device),
                     .registers_of_multiprocessor = attribute(driver, kRegistersOfMultiprocessor, device)};
    card->options_ = kernel_options(architecture);
    card->identity_ = object_identity(nvrtc, card->options_);
    return card;
  } catch (const DriverError& error) {
    return refuse(error.what());
  }
}

std::string Card::compile(std::string_view text) const {
  MachineCode code = nvrtc_.compile(text, device_library(), options_);
  HC_LOG(KernelCode, Info, "{}", code.log);
  return std::move(code.object);
}

std::shared_ptr<const Module> Card::load(std::string_view object) const { return std::make_shared<LoadedLibrary>(*this, object); }

std::string Card::why_not_on(c10::Device device) const {
  if (device.type() != c10::kCUDA || runs_on(device.index())) return "";
  if (static_cast<size_t>(device.index()) >= cards_.size()) return base::format("there is no device cuda:{}", int{device.index()});
  const auto name = [&](int index) {
    const int capability = cards_[static_cast<size_t>(index)].capability;
    return base::format("cuda:{} has compute capability {}.{}", index, capability / 10, capability % 10);
  };
  return base::format("{}, and {}, for which kernels are compiled", name(device.index()), name(0));
}

void* Card::context_of(const Driver& driver, const One& card) {
  void* context = card.context.load(std::memory_order_acquire);
  if (context != nullptr) return context;
  HC_CALL(driver, cuDevicePrimaryCtxRetain, &context, card.device);
  card.context.store(context, std::memory_order_release);
  return context;
}

// More than 48 KiB of shared memory must be requested.
void Card::allow_shared_memory(void* kernel, int device) const {
  int of_arrays = 0;
  HC_CALL(driver_, cuKernelGetAttribute, &of_arrays, kStaticSharedBytes, kernel, device);
  const auto most = static_cast<int>(limits_.most_shared_bytes) - of_arrays;
  HC_CALL(driver_, cuKernelSetAttribute, kMostDynamicSharedBytes, most, kernel, device);
}

int Card::registers_of(void* kernel) const {
  int registers = 0;
  const int device = cards_.front().device;
  return driver_.call().cuKernelGetAttribute(&registers, kRegisters, kernel, device) == 0 ? registers : 0;
}

// Called in the background: if a card rejects the object, this is detected here, where a fallback exists; and no launch has to load code.
void Card::prepare(void* kernel, std::string_view name) const {
  for (size_t i = 0; i < cards_.size(); ++i) {
    if (!runs_on(static_cast<int>(i))) continue;
    unsigned flags = 0;
    int active = 0;
    HC_CALL(driver_, cuDevicePrimaryCtxGetState, cards_[i].device, &flags, &active);
    // The driver may need a context, and this thread may have none.
    std::optional<CurrentContext> current;
    if (active != 0) current.emplace(driver_, context_of(driver_, cards_[i]));
    if (asks_for_shared_memory(name)) allow_shared_memory(kernel, cards_[i].device);
    if (active == 0) continue;
    void* function = nullptr;
    HC_CALL(driver_, cuKernelGetFunction, &function, kernel);
  }
}

// Asks the driver for the current device, not LibTorch: CUDA's runtime sets a thread's context lazily, so LibTorch may report a device
// before its context is current. In the context of another device, the default stream would be that device's. A thread without a context is
// not asked for its device, since tools that monitor the driver report each call that fails.
void Card::enter(c10::DeviceIndex index, std::optional<CurrentContext>& entered) const {
  const One& card = cards_[static_cast<size_t>(index)];
  void* current = nullptr;
  HC_CALL(driver_, cuCtxGetCurrent, &current);
  if (current != nullptr && current == card.context.load(std::memory_order_acquire)) [[likely]]
    return;
  int device = 0;
  if (current == nullptr || driver_.call().cuCtxGetDevice(&device) != 0 || device != card.device)
    entered.emplace(driver_, context_of(driver_, card));
}

void Card::with_context_of(c10::DeviceIndex index, c10::function_ref<void()> call) const {
  std::optional<CurrentContext> entered;
  enter(index, entered);
  call();
}

// Whether the stream is capturing. A CUDA graph of the program's own contains kernels launched during capture, and may outlive our modules.
bool Card::is_captured(void* stream) const {
  int status = 0;
  return driver_.call().cuStreamIsCapturing(stream, &status) == 0 && status != 0;
}

void Card::launch(const Launch& launch) const {
  const int index = launch.device.index();
  if (launch.device.type() != c10::kCUDA || !runs_on(index)) [[unlikely]]
    HC_UNSUPPORTED("A kernel cannot run on {}: {}", launch.device.str(), why_not_on(launch.device));
  std::optional<CurrentContext> entered;
  enter(index, entered);
  void* const stream = current_stream(launch.device);
  void* arguments[] = {const_cast<void*>(launch.argument)};  // the driver copies it
  const Dim &grid = launch.grid, &block = launch.block;
  const int result = driver_.call().cuLaunchKernel(launch.function, grid.x, grid.y, grid.z, block.x, block.y, block.z, launch.shared_bytes,
                                                   stream, arguments, nullptr);
  if (result != 0) [[unlikely]] {
    driver_.check(result, "cuLaunchKernel",
                  base::format("a grid of {}x{}x{} blocks of {}x{}x{} threads and {} bytes of shared memory", grid.x, grid.y, grid.z,
                               block.x, block.y, block.z, launch.shared_bytes));
  }
  if (CardRecording* const recording = CardRecording::current()) [[unlikely]] {
    recording->log(launch, stream);
  } else if (launch.module != nullptr && is_captured(stream)) [[unlikely]] {
    launch.module->keep();
  }
}

// Takes less than half of the host time of a launch.
bool Card::write(c10::Device device, void* to, uint64_t value) const {
  std::optional<CurrentContext> entered;
  enter(device.index(), entered);
  constexpr int kNotSupported = 801;
  const int result = driver_.call().cuStreamWriteValue64_v2(current_stream(device), reinterpret_cast<uint64_t>(to), value, 0);
  if (result == kNotSupported) return false;
  driver_.check(result, "cuStreamWriteValue64_v2");
  return true;
}

bool Card::wants_memory() const { return CardRecording::current() != nullptr; }

std::string Card::why_not_recorded(c10::Device device) const {
  std::string why_not = why_not_on(device);
  if (why_not.empty()) graph_library(&why_not);
  return why_not;
}

// The default stream cannot be queried while another stream that it synchronises with is capturing: then nothing may be enqueued on it
// either.
std::optional<bool> Card::is_captured(c10::Device device) const {
  constexpr int kCaptureOfAnother = 906;  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
  if (!runs_on(device.index())) return std::nullopt;
  std::optional<CurrentContext> entered;
  enter(device.index(), entered);
  int status = 0;
  const int result = driver_.call().cuStreamIsCapturing(current_stream(device), &status);
  return result == 0 ? status != 0 : result == kCaptureOfAnother;
}

std::unique_ptr<Recording> Card::record(c10::Device device, c10::function_ref<void()> give) const {
  std::string why_not = why_not_recorded(device);
  if (!why_not.empty()) HC_UNSUPPORTED("{}", why_not);
  return std::make_unique<CardRecording>(*this, *graph_library(nullptr), device.index(), give);
}

}  // namespace hindcast::codegen::cuda
