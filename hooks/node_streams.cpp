#include "hooks/node_streams.h"

#include "base/check.h"
#include "hooks/start_streams.h"

#include <ATen/Context.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <utility>

namespace hindcast::hooks {

using torch::autograd::InputBuffer;
using torch::autograd::Node;

namespace {

bool is_in_use(c10::DeviceIndex device) { return at::globalContext().getAcceleratorHooksInterface().hasPrimaryContext(device); }

}  // namespace

NodeStreams::NodeStreams(c10::DeviceType accelerator, uint32_t inputs)
    : guard_(accelerator), callers_device_(guard_.getDevice()), crossing_(inputs) {
  const bool has_device_threads = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  for (c10::DeviceIndex i = 0; i < guard_.deviceCount(); ++i) {
    const c10::Device device(accelerator, i);
    const bool is_used = is_in_use(i);
    callers_.push_back(is_used ? MaybeStream(guard_.getStream(device)) : std::nullopt);
    of_a_device_.push_back(is_used && has_device_threads ? MaybeStream(guard_.getDefaultStream(device)) : callers_.back());
  }
}

NodeStreams::~NodeStreams() { enter(std::nullopt); }

void NodeStreams::make_current(const std::vector<MaybeStream>& streams) const {
  for (const MaybeStream& stream : streams) {
    if (stream) guard_.exchangeStream(*stream);
  }
}

void NodeStreams::enter(const MaybeStream& stream) {
  if (stream == entered_) return;
  if (!stream) {
    make_current(callers_);
    guard_.uncheckedSetDevice(callers_device_);
  } else {
    if (!entered_) {
      make_current(of_a_device_);
    } else if (const MaybeStream& before = of_a_device_[entered_->device_index()]) {
      guard_.exchangeStream(*before);
    }
    guard_.exchangeStream(*stream);
    guard_.setDevice(stream->device());
  }
  entered_ = stream;
}

void NodeStreams::enter_again() const {
  if (!entered_) return;
  guard_.exchangeStream(*entered_);
  guard_.setDevice(entered_->device());
}

NodeStreams::MaybeStream NodeStreams::stream_of_caller(const at::Tensor& tensor) const {
  if (tensor.device().type() != guard_.type()) return std::nullopt;
  return callers_[tensor.device().index()];
}

void NodeStreams::give(const at::Tensor& root_gradient, Node& consumer) {
  const MaybeStream from = stream_of_caller(root_gradient), to = consumer.stream();
  if (!from || !to || *from == *to) return;
  InputBuffer one(1);
  one.add(0, at::Tensor(root_gradient), from, to, &consumer);
  to->wait(*one.ready_events[0]);
}

void NodeStreams::put_root(uint32_t input, const at::Tensor& gradient, Node& consumer) {
  put(input, gradient, stream_of_caller(gradient), consumer);
}

void NodeStreams::put(uint32_t input, const at::Tensor& gradient, Node& consumer) { put(input, gradient, entered_, consumer); }

void NodeStreams::put(uint32_t input, const at::Tensor& gradient, const MaybeStream& producer, Node& consumer) {
  const MaybeStream stream = consumer.stream();
  crossing_.add(input, at::Tensor(gradient), producer, stream, &consumer);
  crossing_.buffer[input].reset();
  if (stream) note_reader(gradient, *stream);
}

void NodeStreams::note_reader(const at::Tensor& gradient, const c10::Stream& stream) {
  if (!gradient.has_storage() || gradient.device().type() != guard_.type()) return;
  const auto storage = gradient.storage().getWeakStorageImpl();
  auto& streams = readers_.try_emplace(gradient.storage().unsafeGetStorageImpl(), Readers{storage, {}}).first->second.streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

// The InputBuffer knows who made the two gradients, but not which other nodes received the one that is written to, and may still read it.
void NodeStreams::wait_for_readers(const at::Tensor& sum, const c10::Stream& writer) const {
  if (!sum.has_storage() || sum.storage().use_count() != 1) return;  // not written to
  const auto readers = readers_.find(sum.storage().unsafeGetStorageImpl());
  if (readers == readers_.end()) return;
  for (const c10::Stream& stream : readers->second.streams) order(stream, writer);
}

at::Tensor NodeStreams::add(uint32_t input, at::Tensor sum, at::Tensor gradient, bool sum_is_view, Node& consumer) {
  // An additional reference keeps the InputBuffer from writing to it.
  const at::Tensor shown = sum_is_view ? sum : at::Tensor();
  if (const MaybeStream& adds = crossing_.opt_accum_streams[input]) {
    wait_for_readers(sum, *adds);
    note_reader(sum, *adds);
    note_reader(gradient, *adds);
  }
  crossing_.buffer[input] = std::move(sum);
  crossing_.add(input, std::move(gradient), entered_, consumer.stream(), &consumer);
  return std::move(crossing_.buffer[input]);
}

void NodeStreams::wait(uint32_t input, const at::Tensor& gradient) const {
  if (!entered_ || !gradient.defined() || gradient.device().type() != guard_.type()) return;
  const auto& ready = crossing_.ready_streams[input];
  HC_CHECK(ready, "a gradient waits on no stream");
  if (*ready == *entered_) return;
  HC_CHECK(crossing_.ready_events[input], "a gradient goes to another stream without an event");
  entered_->wait(*crossing_.ready_events[input]);
}

void NodeStreams::join(const c10::Stream& stream) const {
  if (const MaybeStream& callers = callers_[stream.device_index()]) order(stream, *callers);
}

void wait_for_all_streams(c10::DeviceType accelerator) {
  const c10::impl::VirtualGuardImpl guard(accelerator);
  for (c10::DeviceIndex i = 0; i < guard.deviceCount(); ++i) {
    if (is_in_use(i)) guard.synchronizeDevice(i);
  }
}

}  // namespace hindcast::hooks
