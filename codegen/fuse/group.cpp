#include "codegen/fuse/group.h"

#include "base/format.h"
#include "hindcast/detail/footprint.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hindcast::codegen {

namespace {

// An expression has the finest extent of its operands: Element before Segment before Row.
static_assert(Extent::Element < Extent::Segment && Extent::Segment < Extent::Row);

Extent extent_of(const Body& body, const std::vector<Extent>& extents, Operand operand) {
  if (operand.kind == Operand::Kind::Result) return extents[operand.index];
  if (operand.kind == Operand::Kind::Scalar) return Extent::Row;
  if (operand.kind == Operand::Kind::Product) return Extent::Element;
  if (!body.by_rows) return Extent::Element;
  switch (body.loads[operand.index].pattern) {
    case AccessPattern::Dense:
      return Extent::Element;
    case AccessPattern::PerSegment:
      return Extent::Segment;
    case AccessPattern::Broadcast:
      return Extent::Row;
  }
  return Extent::Element;
}

}  // namespace

std::string name_of(const BodyOp& op) {
  if (op.kind == BodyOp::Kind::Functor) return std::string(op.function);
  if (op.kind == BodyOp::Kind::OneHot) return "one_hot";
  constexpr std::array<std::string_view, 4> kOver = {"row", "segment", "segments", "rows"};
  constexpr std::array<std::string_view, 7> kKind = {"sum", "max", "min", "mean", "m2", "largest", "powers"};
  return base::format("{}_{}", kOver[static_cast<size_t>(op.reduction.over)], kKind[static_cast<size_t>(op.reduction.kind)]);
}

size_t leader_of_pair(const Body& body, size_t op) {
  const BodyOp& of = body.ops[op];
  const auto is_of_pair = is_of_moments(of.reduction.kind) ? is_of_moments : is_of_powers;
  if (!is_of_pair(of.reduction.kind)) return op;
  for (size_t i = 0; i < op; ++i) {
    const BodyOp& other = body.ops[i];
    const bool is_alike = other.kind == BodyOp::Kind::Reduction && is_of_pair(other.reduction.kind);
    if (is_alike && other.reduction.over == of.reduction.over && other.args == of.args) return i;
  }
  return op;
}

bool has_moments_over_rows(const Body& body) {
  return std::any_of(body.stores.begin(), body.stores.end(),
                     [](const BodyStore& store) { return store.is_over_rows() && is_of_moments(store.over_rows); });
}

std::optional<size_t> m2_beside(const Body& body, size_t store) {
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const BodyStore& other = body.stores[i];
    if (other.extent == Extent::Columns && other.over_rows == Reduction::Kind::M2 && other.value == body.stores[store].value) return i;
  }
  return std::nullopt;
}

std::vector<Extent> extents_of_ops(const Body& body) {
  std::vector<Extent> extents;
  for (const BodyOp& op : body.ops) {
    if (op.kind == BodyOp::Kind::Reduction) {
      extents.push_back(op.reduction.over == Reduction::Over::Segment ? Extent::Segment : Extent::Row);
      continue;
    }
    Extent extent = op.kind == BodyOp::Kind::OneHot ? Extent::Element : Extent::Row;
    for (const Operand arg : op.args) extent = std::min(extent, extent_of(body, extents, arg));
    extents.push_back(extent);
  }
  return extents;
}

bool goes_along(const Access& access, const std::vector<uint8_t>& order) {
  int64_t last = -1;
  return std::all_of(access.dim_of_axis.begin(), access.dim_of_axis.end(), [&](int8_t dim) {
    if (dim < 0) return true;
    const int64_t place = order.empty() ? dim : std::find(order.begin(), order.end(), static_cast<uint8_t>(dim)) - order.begin();
    return std::exchange(last, place) <= place;
  });
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
  constexpr size_t kElement = 64;  // estimated bytes per element of a list of lists, and per name
  return sizeof(group) + footprint(group.members) + footprint(group.views) + footprint(group.domain) + footprint(group.loads) +
         footprint(group.accesses) + footprint(group.unread) + footprint(group.factors) + footprint(group.scalars) +
         footprint(group.stores) + footprint(group.shapes) + footprint(group.orders) + footprint(group.concats) + footprint(group.leaves) +
         footprint(group.body.loads) + footprint(group.body.ops) + footprint(group.body.stores) +
         kElement * (group.accesses.size() * 2 + group.shapes.size() * 2 + group.body.ops.size() + 1);
}

}  // namespace hindcast::codegen
