#include "codegen/partition/some_gradients.h"

#include <algorithm>
#include <memory>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::Joint;
using capture::ValueId;

namespace {

bool is_mask(const Instr& instr, size_t argument) {
  const capture::Arg& arg = instr.args[argument];
  return instr.op->schema().arguments()[argument].name() == "output_mask" && arg.kind == capture::Arg::Kind::Constant &&
         arg.constant.isBoolList();
}

// The op computes several gradients: it shall compute those that are read.
void leave_out_unread(Instr& instr, size_t mask, const std::vector<bool>& is_read) {
  c10::List<bool> computes = instr.args[mask].constant.toBoolList().copy();
  for (size_t output = 0; output < std::min(computes.size(), instr.outputs.size()); ++output) {
    const ValueId value = instr.outputs[output];
    if (value.defined() && !is_read[value.index]) computes.set(output, false);
  }
  instr.args[mask].constant = computes;
}

}  // namespace

Joint with_some_gradients(const Joint& joint, const std::vector<bool>& wants) {
  auto graph = std::make_shared<Graph>(*joint.graph);
  for (size_t i = 0; i < wants.size() && joint.results + i < graph->outputs.size(); ++i) {
    if (!wants[i]) graph->outputs[joint.results + i] = {};
  }
  std::vector<bool> is_read(graph->values.size());
  const auto read = [&](ValueId value) {
    if (value.defined()) is_read[value.index] = true;
  };
  std::for_each(graph->outputs.begin(), graph->outputs.end(), read);
  for (uint32_t i = static_cast<uint32_t>(graph->instrs.size()); i-- > joint.forward_end;) {
    const Instr& instr = graph->instrs[i];
    const auto is_used = [&](ValueId value) { return value.defined() && is_read[value.index]; };
    if (std::none_of(instr.outputs.begin(), instr.outputs.end(), is_used)) continue;
    for (size_t argument = 0; instr.kind == capture::InstrKind::Op && argument < instr.args.size(); ++argument) {
      if (is_mask(instr, argument)) leave_out_unread(graph->instrs.edit(i), argument, is_read);
    }
    capture::for_each_use(graph->instrs[i], read);
  }
  Joint part = joint;
  part.graph = std::move(graph);
  return part;
}

}  // namespace hindcast::codegen
