#include "capture/backward/trace_writer.h"

#include "capture/graph/same_bits.h"

namespace hindcast::capture {

TraceWriter::TraceWriter(const TraceRequest& request) : request_(request), recorder_(*graph_, policy_) {
  if (!recording()) return;
  graph_->first_call = request.resume.call;
  graph_->stage = request.resume.stage;
  for (const NodeCall& call : request.collected.calls) graph_->node_names.push_back(call.node->name());
  graph_->tensor_inputs.resize(request.collected.tensors.size());
}

std::shared_ptr<Graph> TraceWriter::finish() {
  if (!recording()) return nullptr;
  graph_->values.shrink_to_fit();
  graph_->instrs.shrink_to_fit();
  graph_->buffer_events.shrink_to_fit();
  return graph_;
}

Instr& TraceWriter::add_instr(InstrKind kind) {
  Instr& instr = graph_->instrs.emplace_back();
  instr.kind = kind;
  instr.call = call_;
  instr.buffer_events = static_cast<uint32_t>(graph_->buffer_events.size());
  return instr;
}

void TraceWriter::add_hooks(HookStage stage, const std::vector<Traced>& list, const std::vector<Traced>& kept,
                            const torch::autograd::variable_list& results) {
  if (!recording()) return;
  Instr& instr = add_instr(InstrKind::Hook);
  instr.stage = stage;
  instr.inputs = values(list);
  for (const Traced& item : kept) instr.inputs.push_back(item.value);
  instr.kept_inputs = static_cast<uint32_t>(kept.size());
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
  for (const Traced& item : list) keep_result(item);
}

ValueId TraceWriter::add_boundary_result(const at::Tensor& result, std::vector<ExprId> sizes) {
  add_expected(result, sizes);
  const ValueId id = result.defined() ? recorder_.new_value(result, std::move(sizes)) : recorder_.undefined_value();
  graph_->instrs.back().outputs.push_back(id);
  keep_input(id, result);
  return id;
}

void TraceWriter::add_expected(const at::Tensor& result, const std::vector<ExprId>& sizes) {
  Facts facts;
  append_tensor_facts(result, facts);
  auto& expected = graph_->instrs.back().expected;
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
  if (request_.check) request_.check->inputs.emplace_back(value, is_plain(real) ? clone_exactly(real) : real);
  if (request_.observer) request_.observer->on_input(value, real);
}

void TraceWriter::keep_result(const Traced& item) {
  if (request_.check && item.real.defined() && is_plain(item.real))
    request_.check->results.emplace_back(item.value, clone_exactly(item.real));
}

void TraceWriter::see_gradient(const Traced& gradient) {
  if (request_.observer) request_.observer->on_gradient(call_, gradient.value, gradient.real);
}

}  // namespace hindcast::capture
