#include "engine/cuda_graphs/regions.h"

#include "base/format.h"
#include "capture/ops/op_facts.h"

#include <algorithm>
#include <string_view>

namespace hindcast::engine {
namespace {

using capture::InstrKind;
using codegen::kNoSlot;
using codegen::Step;

// True for steps that read a host scalar on the host, and enqueue only the op itself on the device.
bool may_read_numbers(const Step& step) {
  if (!step.op) return step.call_op && step.call_op->writes_leaves();  // a kernel
  const c10::OperatorName& name = step.op->operator_name();
  return name.overload_name == "Tensor" && capture::facts_of_functional(name).has(capture::OpFacts::Arithmetic);
}

// hindcast::formula is excluded: a formula that reads values makes the host wait.
bool is_known(std::string_view op) { return op.starts_with("aten::") || (op.starts_with("hindcast::") && op != "hindcast::formula"); }

// Why a CUDA graph cannot contain the op; empty if it can.
std::string why_not_recorded(const Step& step) {
  if (!step.op) return "";
  const std::string name = c10::toString(step.op->operator_name());
  if (step.op->hasTag(at::Tag::nondeterministic_seeded)) return name + " draws random numbers";
  if (!is_known(name)) return name + " is another library's, and may give work to another stream, or wait for the host";
  if (step.op->schema().returns().empty()) return name + " only checks its operand: the host waits for the answer";
  return "";
}

class Finder {
 public:
  Finder(const BackwardPlan& plan, const std::vector<uint32_t>& changing)
      : plan_(plan),
        changing_(changing),
        value_of_(plan.slot_count()),
        maker_(plan.slot_count(), kNoSlot),
        last_reader_(plan.slot_count()) {
    const auto& values = plan.graph().values;
    for (uint32_t i = 0; i < values.size(); ++i) {
      if (const uint32_t slot = plan.slot_of({i}); slot != kNoSlot) value_of_[slot] = &values[i];
    }
    for (uint32_t i = 0; i < plan.steps().size(); ++i) {
      const Step& step = plan.steps()[i];
      for_each_slot(step, [&](codegen::SlotUse use) { last_reader_[use.slot] = i; });
      if (step.kind == InstrKind::Event) {
        for (const uint32_t slot : plan.waited_last(step)) last_reader_[slot] = std::max(last_reader_[slot], i);
      }
      for (const uint32_t slot : step.outputs) {
        if (slot != kNoSlot) maker_[slot] = i;
      }
    }
  }

  Regions find() {
    const auto& steps = plan_.steps();
    for (uint32_t i = 0; i < steps.size(); ++i) {
      const std::string why = why_cut(steps[i]);
      if (!why.empty()) {
        end_region(i);
        if (found_.why_not_one.empty()) found_.why_not_one = why;
      } else if (steps[i].kind != InstrKind::Event) {
        if (now_.calls == 0) now_.first = i;
        ++now_.calls;
      }
    }
    end_region(static_cast<uint32_t>(steps.size()));
    if (found_.why_not_one.empty() && found_.all.empty())
      found_.why_not_one = base::format("it has fewer than {} steps that compute", kFewestCalls);
    return std::move(found_);
  }

 private:
  // Why the step ends a region; empty if it may be inside one. The first step with a device sets the region's device.
  std::string why_cut(const Step& step) {
    const capture::Instr& instr = plan_.graph().instrs[step.instr];
    if (step.kind == InstrKind::Event) {
      if (instr.order == capture::EventOrder::Here || instr.order == capture::EventOrder::Late) return "";
      return base::format("the host has to look at {} (NodeCall {}): {}", plan_.graph().origins[step.origin], step.origin + 1,
                          capture::is_barrier(instr) ? "user code runs" : "user code may have changed it");
    }
    const std::string name = step.op ? c10::toString(step.op->operator_name()) : step.call_op ? step.call_op->describe() : "a sum";
    if (std::string why = why_not_recorded(step); !why.empty()) return why;
    std::string why;
    const bool reads_numbers = may_read_numbers(step);
    const auto look_at = [&](uint32_t slot, bool is_read) {
      if (slot == kNoSlot || !why.empty() || value_of_[slot] == nullptr || !value_of_[slot]->defined) return;
      if (is_read && reads_numbers && is_number(slot)) return;
      if (value_of_[slot]->strides.size() != value_of_[slot]->sizes.size()) {
        why = name + " has a tensor that is not strided";
        return;
      }
      const c10::Device device = value_of_[slot]->device;
      if (device.is_cpu()) {
        why = name + (is_changing(slot) ? " reads a number of the CPU that changes from step to step" : " has a tensor of the CPU");
      } else if (now_.calls == 0 && now_.device.is_cpu()) {
        now_.device = device;
      } else if (device != now_.device) {
        why = name + " has tensors of another device";
      }
    };
    for_each_slot(step, [&](codegen::SlotUse use) { look_at(use.slot, true); });
    for (const uint32_t slot : step.outputs) look_at(slot, false);
    return why;
  }

  bool is_changing(uint32_t slot) const { return std::find(changing_.begin(), changing_.end(), slot) != changing_.end(); }

  // Such a scalar is never made inside a region: a step that makes it has a CPU tensor, which ends the region.
  bool is_number(uint32_t slot) const {
    const capture::Value* const value = value_of_[slot];
    return value != nullptr && value->defined && value->device.is_cpu() && value->sizes.empty() && !c10::isComplexType(value->dtype) &&
           !is_changing(slot);
  }

  void end_region(uint32_t last) {
    now_.last = last;
    if (now_.calls >= kFewestCalls) {
      find_slots();
      found_.all.push_back(std::move(now_));
    }
    now_ = {};
  }

  bool is_made_inside(uint32_t slot) const { return maker_[slot] != kNoSlot && maker_[slot] >= now_.first && maker_[slot] < now_.last; }

  void find_slots() {
    std::vector<bool> is_input(plan_.slot_count());
    for (uint32_t i = now_.first; i < now_.last; ++i) {
      const Step& step = plan_.steps()[i];
      if (step.kind == InstrKind::Event) {
        const capture::EventKind kind = plan_.event_of(step).kind;
        if (kind != capture::EventKind::Accumulate && kind != capture::EventKind::Capture) continue;
        const uint32_t slot = step.inputs[0].slot;
        if (slot != kNoSlot && is_made_inside(slot) && last_reader_[slot] < now_.last) now_.results.push_back(i);
        continue;
      }
      for_each_slot(step, [&](codegen::SlotUse use) {
        if (is_input[use.slot] || is_made_inside(use.slot)) return;
        is_input[use.slot] = true;
        (is_number(use.slot) ? now_.numbers : now_.inputs).push_back(use.slot);
      });
      for (const uint32_t slot : step.outputs) {
        if (slot != kNoSlot && last_reader_[slot] >= now_.last) now_.outputs.push_back(slot);
      }
    }
  }

  const BackwardPlan& plan_;
  const std::vector<uint32_t>& changing_;
  std::vector<const capture::Value*> value_of_;  // by slot
  std::vector<uint32_t> maker_;                  // by slot: the step that makes it; kNoSlot for inputs
  std::vector<uint32_t> last_reader_;            // by slot: the last step that reads it, or where the run may stop and still need it
  Region now_;
  Regions found_;
};

// By value: true for scalars that the host computes from constants only, as in Python's `x * 0.5`. They are the same in each run.
std::vector<bool> find_constant_numbers(const capture::Graph& graph) {
  std::vector<bool> is_constant(graph.values.size());
  for (const capture::Instr& instr : graph.instrs) {
    if (instr.kind != InstrKind::Op || instr.op->hasTag(at::Tag::nondeterministic_seeded)) continue;
    bool are_constant = true;
    capture::for_each_use(instr,
                          [&](capture::ValueId value) { are_constant = are_constant && (!value.defined() || is_constant[value.index]); });
    for (const capture::ValueId output : instr.outputs) {
      if (!are_constant || !output.defined()) break;
      const capture::Value& value = graph.values[output.index];
      is_constant[output.index] = value.defined && value.device.is_cpu() && value.sizes.empty() && !c10::isComplexType(value.dtype);
    }
  }
  return is_constant;
}

std::string made_by(const capture::Graph& graph, uint32_t value) {
  for (const capture::Instr& instr : graph.instrs) {
    const auto is_it = [&](capture::ValueId output) { return output.defined() && output.index == value; };
    if (std::any_of(instr.outputs.begin(), instr.outputs.end(), is_it) && instr.op)
      return ", made by " + c10::toString(instr.op->operator_name());
  }
  return "";
}

}  // namespace

std::string why_not_recorded_plan(const codegen::Plan& plan, c10::Device device) {
  const capture::Graph& graph = plan.graph();
  const std::vector<bool> is_constant = find_constant_numbers(graph);
  std::vector<bool> is_constant_slot(plan.slot_count());
  for (uint32_t i = 0; i < graph.values.size(); ++i) {
    const uint32_t slot = plan.slot_of({i});
    if (slot == kNoSlot || !graph.values[i].defined) continue;
    if (!graph.values[i].device.is_cpu() && graph.values[i].device != device) return "it has tensors of several devices";
    if (!graph.values[i].device.is_cpu()) continue;
    if (!is_constant[i]) return "it has a tensor of the CPU" + made_by(graph, i);
    is_constant_slot[slot] = true;
  }
  const auto is_constant_at = [&](uint32_t slot) { return slot != kNoSlot && is_constant_slot[slot]; };
  for (const Step& step : plan.steps()) {
    bool reads_one = false;
    for_each_slot(step, [&](codegen::SlotUse use) { reads_one = reads_one || is_constant_at(use.slot); });
    const bool makes_one = std::any_of(step.outputs.begin(), step.outputs.end(), is_constant_at);
    if (reads_one && !makes_one && !may_read_numbers(step)) {
      return (step.op ? c10::toString(step.op->operator_name()) : std::string("a kernel")) + " has a tensor of the CPU";
    }
    if (std::string why = why_not_recorded(step); !why.empty()) return why;
  }
  return "";
}

Regions find_regions(const BackwardPlan& plan, const std::vector<uint32_t>& changing) { return Finder(plan, changing).find(); }

}  // namespace hindcast::engine
