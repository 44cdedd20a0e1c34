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

void order(const c10::Stream& earlier, const c10::Stream& later) {
  if (earlier == later) return;
  c10::Event event(earlier.device_type());
  event.record(earlier);
  later.wait(event);
}

}  // namespace

void note_reader(const at::Tensor& tensor, const c10::Stream& reader) {
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
  if (tensor.device() == maker->device()) note_reader(tensor, now);
}

StartStreams::StartStreams(c10::ArrayRef<at::Tensor> inputs) {
  for (const at::Tensor& input : inputs) {
    const auto stream = current_stream_for(input);
    if (stream && std::find(streams_.begin(), streams_.end(), *stream) == streams_.end()) streams_.push_back(*stream);
  }
  if (!streams_.empty()) device_ = VirtualGuardImpl(streams_.front().device_type()).getDevice();
}

StartStreams::Scope::Scope(const StartStreams& start, c10::ArrayRef<at::Tensor> inputs, std::optional<c10::Stream> node)
    : node_(node), during_(start.streams_) {
  if (during_.empty()) return;
  const VirtualGuardImpl guard(during_.front().device_type());
  for (const c10::Stream& stream : during_) {
    before_.push_back(guard.exchangeStream(stream));
    order(before_.back(), stream);
    if (node_) order(*node_, stream);
  }
  for (const at::Tensor& input : inputs) {
    if (const auto stream = current_stream_for(input)) note_reader(input, *stream);
  }
  device_ = guard.getDevice();
  guard.uncheckedSetDevice(*start.device_);  // makes no context on a device that the process does not use
}

StartStreams::Scope::~Scope() {
  if (during_.empty()) return;
  const VirtualGuardImpl guard(during_.front().device_type());
  for (size_t i = 0; i < during_.size(); ++i) {
    guard.exchangeStream(before_[i]);
    order(during_[i], before_[i]);
    if (node_) order(during_[i], *node_);
  }
  guard.uncheckedSetDevice(*device_);
}

}  // namespace hindcast::hooks
