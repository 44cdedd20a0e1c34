#include "codegen/fuse/group.h"

#include "base/footprint.h"

#include <algorithm>

namespace hindcast::codegen {

namespace {

// An expression is of the finest extent that its operands have: Element before Run before Row.
static_assert(Extent::Element < Extent::Run && Extent::Run < Extent::Row);

Extent extent_of(const Body& body, const std::vector<Extent>& extents, Operand operand) {
  if (operand.kind == Operand::Kind::Result) return extents[operand.index];
  if (operand.kind == Operand::Kind::Scalar) return Extent::Row;
  if (!body.by_rows) return Extent::Element;
  switch (body.loads[operand.index].walk) {
    case Walk::Dense:
      return Extent::Element;
    case Walk::ByRun:
      return Extent::Run;
    case Walk::Still:
      return Extent::Row;
  }
  return Extent::Element;
}

}  // namespace

std::vector<Extent> extents_of_ops(const Body& body) {
  std::vector<Extent> extents;
  for (const BodyOp& op : body.ops) {
    if (op.function == kRowSum || op.function == kSumOfRuns || op.function == kRunSum) {
      extents.push_back(op.function == kRunSum ? Extent::Run : Extent::Row);
      continue;
    }
    Extent extent = op.function == kOneHot ? Extent::Element : Extent::Row;
    for (const Operand arg : op.args) extent = std::min(extent, extent_of(body, extents, arg));
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

size_t footprint(const Group& group) {
  using base::footprint;
  constexpr size_t kElement = 64;  // of a list of lists, and of names
  return sizeof(group) + footprint(group.members) + footprint(group.views) + footprint(group.domain) + footprint(group.order) +
         footprint(group.loads) + footprint(group.accesses) + footprint(group.unread) + footprint(group.scalars) + footprint(group.stores) +
         footprint(group.shapes) + footprint(group.concats) + footprint(group.leaves) + footprint(group.body.loads) +
         footprint(group.body.ops) + footprint(group.body.stores) +
         kElement * (group.accesses.size() * 2 + group.shapes.size() + group.body.ops.size() + 1);
}

}  // namespace hindcast::codegen
