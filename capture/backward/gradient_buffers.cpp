#include "capture/backward/gradient_buffers.h"

#include "hooks/add_gradients.h"

namespace hindcast::capture {

std::vector<Traced> GradientBuffers::take(const NodeCall& call) {
  std::vector<Traced> inputs;
  for (uint32_t i = 0; i < call.input_count; ++i) {
    inputs.push_back(std::exchange(waiting_[call.first_input + i], {}));
    if (streams_) streams_->wait(call.first_input + i, inputs.back().real);
    if (inputs.back().value.defined()) writer_.note_buffer(call.first_input + i, {});
  }
  return inputs;
}

void GradientBuffers::put(uint32_t input, Traced gradient) {
  waiting_[input] = std::move(gradient);
  writer_.note_buffer(input, waiting_[input].value);
}

void GradientBuffers::distribute(const Collected& collected, const NodeCall& call, std::vector<Traced>& outputs) {
  for (uint32_t e = 0; e < call.edge_count && e < outputs.size(); ++e) {
    const EdgeTarget& edge = collected.edges[call.first_edge + e];
    if (edge.call == kNoCall || !outputs[e].real.defined()) continue;
    const uint32_t input = collected.calls[edge.call].first_input + edge.input_nr;
    torch::autograd::Node& consumer = *collected.calls[edge.call].node;
    Traced gradient = std::exchange(outputs[e], {});
    if (waiting_[input].real.defined()) {
      add(input, std::move(gradient), consumer);
    } else {
      if (streams_) streams_->put(input, gradient.real, consumer);
      put(input, std::move(gradient));
    }
  }
}

void GradientBuffers::add(uint32_t input, Traced gradient, torch::autograd::Node& consumer) {
  Traced& waiting = waiting_[input];
  const bool is_view = writer_.recording() && writer_.graph().values[waiting.value.index].is_view;
  if (streams_) {
    waiting.real = streams_->add(input, std::move(waiting.real), std::move(gradient.real), is_view, consumer);
  } else {
    waiting.real = hooks::add_gradients(std::move(waiting.real), std::move(gradient.real), is_view);
  }
  if (!writer_.recording()) return;
  const ValueId sum = writer_.recorder().new_value(waiting.real, writer_.graph().values[waiting.value.index].sizes);
  Instr& instr = writer_.add_instr(InstrKind::AddGrads);
  instr.inputs = {waiting.value, gradient.value};
  instr.outputs = {sum};
  waiting.value = sum;
  writer_.note_buffer(input, sum);
}

}  // namespace hindcast::capture
