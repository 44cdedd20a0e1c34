// In-place writes as values: a write makes a new value of the base, and a view of the base derives its own value again on demand.

#include "capture/graph/known_op.h"
#include "capture/recorder/recorder.h"

#include <c10/core/GradMode.h>

namespace hindcast::capture {

void Recorder::add_mutation(const c10::OperatorHandle& op, std::vector<Arg> args, Written written) {
  TracingTensor& target = *written.target;
  Instr& instr = new_instr(op, std::move(args), InstrKind::Mutate);
  instr.target_arg = written.arg;
  instr.seen = seen_;
  instr.args[written.arg] = {};
  instr.base = target.base->value;
  instr.views = target.views;
  graph_.values.push_back(graph_.values[target.base->value.index]);
  const ValueId id{static_cast<uint32_t>(graph_.values.size() - 1)};
  instr.outputs = {id};
  target.base->value = id;
  ++target.base->version;
  if (target.views.empty()) {
    target.value = id;
    target.version = target.base->version;
  }
}

void Recorder::become_copy(const at::Tensor& stand_in) {
  static constinit KnownOp clone("aten::clone");
  TracingTensor& traced = *TracingTensor::get(stand_in);
  Base& base = *traced.base;
  Instr& instr = new_instr(clone.get(), {{Arg::Kind::Value, {}, {base.value}, {}}, {}});
  graph_.values.push_back(graph_.values[base.value.index]);
  base.value = {static_cast<uint32_t>(graph_.values.size() - 1)};
  instr.outputs = {base.value};
  ++base.version;
  base.fresh = true;
  traced.value = base.value;
  traced.version = base.version;
}

void Recorder::derive_again(TracingTensor& view) {
  const c10::AutoGradMode as_when_taken(view.requires_grad());
  ValueId id = view.base->value;
  for (size_t k = 0; k < view.views.size(); ++k) {
    const ViewStep& step = view.views[k];
    Instr& instr = new_instr(step.op, step.args);
    instr.args[step.self_arg] = {Arg::Kind::Value, {}, {id}, {}};
    const Value derived = graph_.values[view.view_values[k].index];
    // Only the viewed result is read; the others exist to keep the op's arity.
    for (uint32_t i = 0; i <= step.output; ++i) {
      graph_.values.push_back(derived);
      instr.outputs.push_back({static_cast<uint32_t>(graph_.values.size() - 1)});
    }
    id = instr.outputs.back();
  }
  if (lifts_) {
    const auto held = c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(&view);
    derived_.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(held), view.value, view.version});
  }
  view.value = id;
  view.version = view.base->version;
}

void Recorder::forget_derived() {
  for (; !derived_.empty(); derived_.pop_back()) {
    const at::Tensor view(derived_.back().view.lock());
    TracingTensor* const traced = TracingTensor::get(view);
    if (traced == nullptr) continue;
    traced->value = derived_.back().before;
    traced->version = derived_.back().version;
  }
}

}  // namespace hindcast::capture
