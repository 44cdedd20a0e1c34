#include "hooks/start_streams.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace hindcast::hooks {
namespace {

using c10::impl::VirtualGuardImpl;

bool is_on_accelerator(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu() || tensor.is_meta()) return false;
  return at::accelerator::getAccelerator() == tensor.device().type();
}

}  // namespace

void order(const c10::Stream& earlier, const c10::Stream& later) {
  if (earlier == later) return;
  c10::Event event(earlier.device_type());
  event.record(earlier);
  later.wait(event);
}

void keep_for(const at::Tensor& tensor, const c10::Stream& reader) {
  if (tensor.has_storage()) VirtualGuardImpl(reader.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), reader);
}

std::optional<c10::Stream> current_stream_for(const at::Tensor& tensor) {
  if (!is_on_accelerator(tensor)) return std::nullopt;
  return VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

void hand_over(const at::Tensor& tensor, const std::optional<c10::Stream>& maker) {
  if (!maker) return;
  const c10::Stream now = VirtualGuardImpl(maker->device_type()).getStream(maker->device());
  if (now == *maker) return;
  order(*maker, now);
  if (tensor.device() == maker->device()) keep_for(tensor, now);
}

c10::SmallVector<c10::Device, 2> accelerators_of(c10::ArrayRef<at::Tensor> tensors) {
  c10::SmallVector<c10::Device, 2> devices;
  for (const at::Tensor& tensor : tensors) {
    if (is_on_accelerator(tensor) && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  }
  return devices;
}

StartStreams::StartStreams(c10::ArrayRef<c10::Device> devices) {
  if (devices.empty()) return;
  const VirtualGuardImpl guard(devices.front().type());
  for (const c10::Device device : devices) streams_.push_back(guard.getStream(device));
  device_ = guard.getDevice();
}

StartStreams::Scope::Scope(const StartStreams& start, c10::ArrayRef<at::Tensor> inputs, std::optional<c10::Stream> node)
    : node_(node), streams_(start.streams_) {
  if (streams_.empty()) return;
  const VirtualGuardImpl guard(streams_.front().device_type());
  former_.device = guard.getDevice();
  for (const c10::Stream& stream : streams_) {
    former_.streams.push_back(guard.exchangeStream(stream));
    order(node_ ? *node_ : former_.streams.back(), stream);
  }
  for (const at::Tensor& input : inputs) {
    if (const auto stream = current_stream_for(input)) keep_for(input, *stream);
  }
  guard.uncheckedSetDevice(*start.device_);  // creates no context on a device that the process does not use
}

void StartStreams::Scope::leave() const {
  for (size_t i = 0; i < streams_.size(); ++i) order(streams_[i], node_ ? *node_ : former_.streams[i]);
}

StartStreams::Scope::Former::~Former() {
  if (!device) return;
  const VirtualGuardImpl guard(device->type());
  for (const c10::Stream& stream : streams) guard.exchangeStream(stream);
  guard.uncheckedSetDevice(*device);
}

}  // namespace hindcast::hooks
