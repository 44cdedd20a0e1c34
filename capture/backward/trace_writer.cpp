#include "capture/backward/trace_writer.h"

#include "capture/graph/same_bits.h"
#include "hooks/node_streams.h"

#include <algorithm>
#include <tuple>

namespace hindcast::capture {
namespace {

std::pair<EventOrder, EventUse> order_and_use(EventKind kind) {
  switch (kind) {
    case EventKind::NodeStart:
      return {EventOrder::Here, EventUse::Wait};
    case EventKind::Hook:
    case EventKind::CallNode:
      return {EventOrder::Barrier, EventUse::Show};
    case EventKind::Accumulate:
      return {EventOrder::Late, EventUse::Keep};
    case EventKind::Capture:
      return {EventOrder::Late, EventUse::Show};
    case EventKind::Release:  // reads nothing
      return {EventOrder::Here, EventUse::Keep};
  }
  return {};
}

// A copy for a check, which may be made on another stream than the tensor, and read by a thread that does not use streams.
at::Tensor kept(const at::Tensor& real, const Collected& collected) {
  if (!is_plain(real)) return real;
  if (collected.stream) hooks::wait_for_all_streams(collected.stream->device_type());
  return clone_exactly(real);
}

}  // namespace

TraceWriter::TraceWriter(const TraceRequest& request) : request_(request), recorder_(*graph_, policy_) {
  if (!recording()) return;
  graph_->first_call = request.resume.call;
  graph_->stage = request.resume.stage;
  for (const NodeCall& call : request.collected.calls) graph_->origins.push_back(call.node->name());
  graph_->inputs.resize(request.collected.tensors.size());
  graph_->owners.resize(graph_->inputs.size());
  for (uint32_t call = 0; call < request.collected.calls.size(); ++call) {
    const NodeCall& owner = request.collected.calls[call];
    std::fill_n(graph_->owners.begin() + owner.first_tensor, owner.tensor_count, call);
  }
  graph_->tensor_count = static_cast<uint32_t>(graph_->inputs.size());
}

std::shared_ptr<BackwardGraph> TraceWriter::finish() {
  if (!recording()) return nullptr;
  graph_->values.compact();
  graph_->instrs.compact();
  graph_->events.shrink_to_fit();
  graph_->buffer_events.shrink_to_fit();
  graph_->mark_bailout_points();
  return graph_;
}

Instr& TraceWriter::add_instr(InstrKind kind) {
  Instr& instr = graph_->instrs.emplace_back();
  instr.kind = kind;
  instr.origin = call_;
  return instr;
}

Event& TraceWriter::add_event(EventKind kind, ValueIds inputs) {
  Instr& instr = add_instr(InstrKind::Event);
  instr.event = static_cast<uint32_t>(graph_->events.size());
  std::tie(instr.order, instr.use) = order_and_use(kind);
  instr.inputs = std::move(inputs);
  Event& event = graph_->events.emplace_back();
  event.kind = kind;
  event.buffer_events = static_cast<uint32_t>(graph_->buffer_events.size());
  return event;
}

void TraceWriter::release_node() {
  if (!is_released_) add_event(EventKind::Release);
  is_released_ = true;
}

Event& TraceWriter::add_accumulate(ValueId gradient, bool has_post_hooks) {
  Event& event = add_event(EventKind::Accumulate, {gradient});
  if (has_post_hooks) graph_->instrs.edit_back().order = EventOrder::Barrier;
  return event;
}

void TraceWriter::add_hooks(HookStage stage, const std::vector<Traced>& list, const std::vector<Traced>& kept,
                            const torch::autograd::variable_list& results) {
  if (!recording()) return;
  ValueIds inputs = values(list);
  for (const Traced& item : kept) inputs.push_back(item.value);
  Event& hooks = add_event(EventKind::Hook, std::move(inputs));
  hooks.stage = stage;
  hooks.kept_inputs = static_cast<uint32_t>(kept.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& result = results[i];
    std::vector<ExprId> sizes;
    if (result.defined()) {
      const bool same_shape =
          i < list.size() && list[i].value.defined() && list[i].real.defined() && list[i].real.sizes() == result.sizes();
      if (same_shape) {
        sizes = graph_->values[list[i].value.index].sizes;
      } else {
        for (const int64_t size : result.sizes()) sizes.push_back(symbols().integer(size));
      }
    }
    add_boundary_result(result, std::move(sizes));
  }
}

ValueId TraceWriter::add_boundary_result(const at::Tensor& result, std::vector<ExprId> sizes) {
  add_expected(result, sizes);
  const ValueId id = result.defined() ? recorder_.new_value(result, std::move(sizes)) : recorder_.undefined_value();
  graph_->instrs.edit_back().outputs.push_back(id);
  keep_input(id, result);
  return id;
}

void TraceWriter::add_expected(const at::Tensor& result, const std::vector<ExprId>& sizes) {
  Facts facts;
  append_tensor_facts(result, facts);
  auto& expected = graph_->events.back().expected;
  const bool plain = result.defined() && is_plain(result);
  for (size_t f = 0; f < facts.size(); ++f) {
    FactPattern pattern{facts[f], std::nullopt};
    if (plain && f >= 1 && f <= sizes.size() && !symbols().is_constant(sizes[f - 1])) pattern.expr = sizes[f - 1];
    expected.push_back(pattern);
  }
}

void TraceWriter::note_buffer(uint32_t input, ValueId value) {
  if (recording()) graph_->buffer_events.push_back({input, value});
}

void TraceWriter::keep_input(ValueId value, const at::Tensor& real) {
  if (!real.defined()) return;
  if (request_.check) request_.check->inputs.emplace_back(value, kept(real, request_.collected));
  if (request_.observer) request_.observer->on_input(value, real);
}

void TraceWriter::keep_result(const Traced& item) {
  if (request_.check && item.real.defined() && is_plain(item.real))
    request_.check->results.emplace_back(item.value, kept(item.real, request_.collected));
}

void TraceWriter::see_gradient(const Traced& gradient) {
  if (request_.observer) request_.observer->on_gradient(call_, gradient.value, gradient.real);
}

}  // namespace hindcast::capture
