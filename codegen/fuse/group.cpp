#include "codegen/fuse/group.h"

#include <algorithm>

namespace hindcast::codegen {

std::vector<Extent> extents_of_ops(const Body& body) {
  std::vector<Extent> extents;
  for (const BodyOp& op : body.ops) {
    Extent extent = Extent::Row;
    for (const Operand arg : op.args) {
      if (op.function == kRowSum) break;
      const bool is_element = arg.kind == Operand::Kind::Load     ? !body.by_rows || body.loads[arg.index].walk == Walk::Dense
                              : arg.kind == Operand::Kind::Result ? extents[arg.index] == Extent::Element
                                                                  : false;
      if (is_element || op.function == kOneHot) extent = Extent::Element;
    }
    extents.push_back(extent);
  }
  return extents;
}

std::vector<capture::ValueId> inputs_of(const Group& group) {
  std::vector<capture::ValueId> inputs = group.loads;
  inputs.insert(inputs.end(), group.unread.begin(), group.unread.end());
  return inputs;
}

std::vector<capture::ValueId> results_of(const Group& group) {
  std::vector<capture::ValueId> results = group.stores;
  for (const Group::Concat& concat : group.concats) results.push_back(concat.value);
  return results;
}

std::vector<capture::ValueId> stored_values_of(const Group& group) {
  std::vector<capture::ValueId> values = group.stores;
  for (const Group::Concat& concat : group.concats) values.insert(values.end(), concat.parts.begin(), concat.parts.end());
  return values;
}

std::vector<uint32_t> instrs_of(const Group& group) {
  std::vector<uint32_t> instrs = group.views;
  instrs.insert(instrs.end(), group.members.begin(), group.members.end());
  std::sort(instrs.begin(), instrs.end());
  instrs.erase(std::unique(instrs.begin(), instrs.end()), instrs.end());
  return instrs;
}

}  // namespace hindcast::codegen
