#include "codegen/fuse/open_group.h"

#include "base/check.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace hindcast::codegen {

using capture::ExprId;
using capture::Value;
using capture::ValueId;

namespace {

std::vector<uint8_t> count_up(size_t n) {
  std::vector<uint8_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), uint8_t(0));
  return numbers;
}

uint32_t bits_of(const std::vector<uint8_t>& axes) {
  uint32_t bits = 0;
  for (const uint8_t axis : axes) bits |= 1u << axis;
  return bits;
}

}  // namespace

class OpenGroup::Builder final : public BodyBuilder {
 public:
  Builder(OpenGroup& open, uint32_t instr, const Member& member, const Place& place)
      : open_(open), group_(open.group_), instr_(instr), member_(member), place_(place) {}

  Operand tensor(ValueId value) override {
    const auto& numbers = member_.numbers;
    if (std::find(numbers.begin(), numbers.end(), value) != numbers.end()) return number_of_host(value);
    const Views::Source source = open_.views_->source_of(value);
    open_.views_->append_views(value, group_.views);
    const Operand read = of_source(value, source.value);
    return source.is_conjugated ? op("conj", {read}) : read;
  }

  Operand scalar(const capture::Arg& arg) override {
    if (arg.constant.isComplexDouble()) {
      const auto parts = arg.constant.toComplexDouble();
      const Operand real = number(parts.real());
      return op("from_parts", {real, number(parts.imag())});
    }
    group_.scalars.push_back({arg, {}});
    return {Operand::Kind::Scalar, group_.body.scalars++};
  }
  Operand number(double value) override { return inverse_of({}, value); }
  Operand inverse_of(const Sizes& sizes, double numerator) override {
    capture::Arg arg;
    arg.constant = numerator;
    group_.scalars.push_back({arg, sizes});
    return {Operand::Kind::Scalar, group_.body.scalars++};
  }
  const Sizes& sizes_of(const capture::Arg& tensor) const override { return open_.graph_->values[tensor.values[0].index].sizes; }

  Operand op(FunctorName functor, std::vector<Operand> args) override { return add({functor, std::move(args)}); }
  // Reuses an equal reduction of the same operand: the compiler does not merge two loops that compute the same.
  Operand reduce(Reduction reduction, Operand operand) override {
    BodyOp op{{}, {operand}, BodyOp::Kind::Reduction, reduction};
    const auto& ops = group_.body.ops;
    const auto known = std::find(ops.begin(), ops.end(), op);
    if (known == ops.end()) return add(std::move(op));
    return {Operand::Kind::Result, static_cast<uint32_t>(known - ops.begin())};
  }
  Operand product() override {
    group_.body.product = *member_.product;
    group_.factors = member_.factors;
    return {Operand::Kind::Product, 0};
  }
  Operand one_hot(Operand index, Operand value) override {
    HC_CHECK(index.kind == Operand::Kind::Load, "indices that a kernel computes");
    return add({{}, {index, value}, BodyOp::Kind::OneHot});
  }
  Operand checked_one_hot(Operand index, Operand value, Operand other) override {
    HC_CHECK(index.kind == Operand::Kind::Load, "indices that a kernel computes");
    group_.body.loads[index.index].is_checked = true;
    return add({{}, {index, value, other}, BodyOp::Kind::OneHot});
  }
  void result(size_t output, Operand value, Extent extent) override {
    if (place_.is_of_rows) extent = Extent::Row;
    Made& made = open_.made_[open_.graph_->instrs[instr_].outputs[output].index] = {value, extent};
    if (member_.kind == Member::Kind::Pointwise && !member_.is_in_order()) made.dim_of_axis = open_.dims_of_result(member_, place_);
  }

 private:
  Operand add(BodyOp op) {
    group_.body.ops.push_back(std::move(op));
    return {Operand::Kind::Result, static_cast<uint32_t>(group_.body.ops.size() - 1)};
  }

  Operand number_of_host(ValueId value) {
    auto& scalars = group_.scalars;
    const auto known = std::find_if(scalars.begin(), scalars.end(), [&](const GroupScalar& scalar) { return scalar.number == value; });
    if (known != scalars.end()) return {Operand::Kind::Scalar, static_cast<uint32_t>(known - scalars.begin())};
    scalars.push_back({.number = value});
    return {Operand::Kind::Scalar, group_.body.scalars++};
  }

  Operand of_source(ValueId value, ValueId source) {
    if (const auto made = open_.made_.find(source.index); made != open_.made_.end()) return made->second.value;
    const auto operand = std::find_if(member_.operands.begin(), member_.operands.end(),
                                      [&](const MemberOperand& candidate) { return candidate.value == value; });
    HC_CHECK(operand != member_.operands.end(), "an operand that was not announced");
    const Access access = *open_.access_of(place_, member_, *operand);
    for (size_t i = 0; i < group_.loads.size(); ++i) {
      if (group_.loads[i] == source && group_.accesses[i] == access) return {Operand::Kind::Load, static_cast<uint32_t>(i)};
    }
    const AccessPattern pattern = *open_.pattern_of(source, access, group_.domain, group_.columns, group_.channels);
    group_.body.loads.push_back({open_.graph_->values[source.index].dtype, pattern});
    group_.loads.push_back(source);
    group_.accesses.push_back(access);
    return {Operand::Kind::Load, static_cast<uint32_t>(group_.loads.size() - 1)};
  }

  OpenGroup& open_;
  Group& group_;
  const uint32_t instr_;
  const Member& member_;
  const Place& place_;
};

bool OpenGroup::loads(ValueId value) const { return std::find(group_.loads.begin(), group_.loads.end(), value) != group_.loads.end(); }

bool OpenGroup::is_concat(ValueId value) const {
  return std::any_of(group_.concats.begin(), group_.concats.end(), [&](const Group::Concat& concat) { return concat.value == value; });
}

std::vector<uint8_t> OpenGroup::row_axes() const {
  std::vector<uint8_t> axes;
  for (uint8_t axis = 0; axis < group_.domain.size(); ++axis) {
    if (!(group_.columns >> axis & 1)) axes.push_back(axis);
  }
  return axes;
}

std::optional<OpenGroup::Place> OpenGroup::find_place(const Member& member) const {
  if (group_.members.empty()) {
    if (member.kind == Member::Kind::Concat) return std::nullopt;
    Place place;
    place.domain = member.sizes;
    for (uint8_t i = 0; i < member.sizes.size(); ++i) place.axes_of_dim.push_back({i});
    if (!set_columns(member, place)) return std::nullopt;
    const bool all = std::all_of(member.operands.begin(), member.operands.end(),
                                 [&](const MemberOperand& operand) { return can_read(member, place, operand); });
    return all ? std::optional(place) : std::nullopt;
  }
  if (member.device != group_.device || (member.compute != group_.body.compute && member.compute != at::kBool)) return std::nullopt;
  if (member.kind == Member::Kind::Concat && group_.body.by_rows) return std::nullopt;
  if (member.kind == Member::Kind::Product) return std::nullopt;
  if (group_.body.product) return place_behind_product(member);
  if (auto place = place_over(member, group_.domain, count_up(group_.domain.size()), false)) return place;
  if (!group_.body.by_rows || member.kind != Member::Kind::Pointwise) return std::nullopt;
  Sizes rows;
  const auto numbers = row_axes();
  for (const uint8_t axis : numbers) rows.push_back(group_.domain[axis]);
  return place_over(member, rows, numbers, true);
}

// A place for a pointwise op or a concat over the product's rows and columns. Rows may be split into dims, as for a linear layer with a 3-d
// input.
std::optional<OpenGroup::Place> OpenGroup::place_behind_product(const Member& member) const {
  if (member.kind != Member::Kind::Pointwise && member.kind != Member::Kind::Concat) return std::nullopt;
  auto place = place_over(member, group_.domain, count_up(group_.domain.size()), false);
  const bool is_batched = graph_->values[group_.factors[0].index].sizes.size() == 3;
  if (place && (place->domain.back() != group_.domain.back() || (is_batched && place->domain.size() != group_.domain.size())))
    place.reset();
  return place;
}

// Whether an operand that the group computes has the shape of the member's domain: then the two domains have equally many elements.
bool OpenGroup::is_as_large_as_an_operand(const Member& member, Extent extent) const {
  return std::any_of(member.operands.begin(), member.operands.end(), [&](const MemberOperand& operand) {
    const Views::Source source = views_->source_of(operand.value);
    const auto made = made_.find(source.value.index);
    if (made == made_.end() || made->second.extent != extent || !source.offsets.empty()) return false;
    Sizes sizes = source.sizes;
    if (sizes.size() == member.order.size()) {
      for (size_t dim = 0; dim < sizes.size(); ++dim) sizes[dim] = source.sizes[member.order[dim]];
    }
    return match(*graph_->symbols, sizes, member.sizes, false).has_value();
  });
}

// Matches the member's domain to `axes`, which are the axes of the group's domain with indices `numbers`.
std::optional<OpenGroup::Place> OpenGroup::place_over(const Member& member, const Sizes& axes, const std::vector<uint8_t>& numbers,
                                                      bool is_of_rows) const {
  const bool same_numel = is_as_large_as_an_operand(member, is_of_rows ? Extent::Row : Extent::Element);
  // A kernel of long rows computes such numbers one by one, one of short rows many at a time.
  const bool may_join = group_.body.has_short_rows && costs_->joins_numbers_of_rows();
  if (is_of_rows && !same_numel && !may_join) return std::nullopt;
  const auto blocks = match(*graph_->symbols, member.sizes, axes, same_numel);
  if (!blocks) return std::nullopt;

  // An axis that corresponds to several dims of the member is split.
  Place place;
  place.is_of_rows = is_of_rows;
  place.axes_of_dim.resize(member.sizes.size());
  for (uint8_t axis = 0; axis < group_.domain.size(); ++axis) {
    const auto block = std::find_if(blocks->begin(), blocks->end(), [&](const Block& candidate) {
      return std::any_of(candidate.axes.begin(), candidate.axes.end(), [&](uint8_t i) { return numbers[i] == axis; });
    });
    auto& mine = place.axes_of_axis.emplace_back();
    const size_t parts = block != blocks->end() && block->dims.size() > 1 ? block->dims.size() : 1;
    if (parts > 1 && is_cut_along(axis)) return std::nullopt;
    for (size_t part = 0; part < parts; ++part) {
      const auto now = static_cast<uint8_t>(place.domain.size());
      mine.push_back(now);
      if (group_.columns >> axis & 1) place.columns |= 1u << now;
      if (group_.channels >> axis & 1) place.channels |= 1u << now;
      place.domain.push_back(parts > 1 ? member.sizes[block->dims[part]] : group_.domain[axis]);
      if (block != blocks->end()) place.axes_of_dim[block->dims[parts > 1 ? part : 0]].push_back(now);
    }
  }
  if (place.domain.size() > kMaxRank) return std::nullopt;
  if (!set_columns(member, place)) return std::nullopt;
  for (const MemberOperand& operand : member.operands) {
    if (!can_read(member, place, operand)) return std::nullopt;
  }
  return place;
}

// The first member that needs rows determines which axes form a row.
bool OpenGroup::set_columns(const Member& member, Place& place) const {
  if (member.kind != Member::Kind::Reduction && member.kind != Member::Kind::Rows) return true;
  if (!group_.concats.empty()) return false;
  uint32_t axes = 0, channels = 0, all = 0;
  for (size_t dim = 0; dim < member.sizes.size(); ++dim) {
    if (member.row_dims >> dim & 1) axes |= bits_of(place.axes_of_dim[dim]);
    if (member.channel_dims >> dim & 1) channels |= bits_of(place.axes_of_dim[dim]);
  }
  for (uint8_t axis = 0; axis < place.domain.size(); ++axis) {
    if (graph_->symbols->constant(place.domain[axis]) != 1) all |= 1u << axis;
  }
  axes &= all;
  channels &= all;
  if (axes == 0) return false;
  if (channels != 0 && place.channels != 0 && channels != place.channels) return false;
  place.summed = axes;
  place.channels |= channels;
  const bool may_be_over_rows = member.kind == Member::Kind::Reduction && member.reduction != Reduction::Kind::Mean;
  if (group_.body.by_rows) {
    const uint32_t columns = place.columns & all;
    if (!go_in_two_loops(columns, place)) return false;
    return columns == axes || (may_be_over_rows && columns == (all & ~axes));
  }
  // The columns must include the innermost axis; a reduction over other axes is one over rows.
  const bool has_innermost = axes >= std::bit_floor(all);
  if (!has_innermost && !may_be_over_rows) return false;
  return make_rows(has_innermost ? axes : all & ~axes, member, place);
}

// A kernel has at most two loops along a row: over its segments, and along a segment. Axes of rows between those of columns would require
// more.
bool OpenGroup::go_in_two_loops(uint32_t columns, const Place& place) const {
  enum class Of : uint8_t { Rows, Columns, Channels };
  int loops = 0;
  Of before = Of::Rows;
  for (uint8_t axis = 0; axis < place.domain.size(); ++axis) {
    if (graph_->symbols->constant(place.domain[axis]) == 1) continue;
    const Of now = !(columns >> axis & 1) ? Of::Rows : place.channels >> axis & 1 ? Of::Channels : Of::Columns;
    if (now != Of::Rows && now != before) ++loops;
    before = now;
  }
  return loops <= 2;
}

// The group's existing loads must have one number per row, or be dense along the row.
bool OpenGroup::make_rows(uint32_t columns, const Member& member, Place& place) const {
  if (!go_in_two_loops(columns, place)) return false;
  place.columns = columns;
  for (size_t i = 0; i < group_.loads.size(); ++i) {
    if (!pattern_of(group_.loads[i], moved(group_.accesses[i], place), place.domain, columns, place.channels)) return false;
  }
  RowShape rows{.numel = 1, .row = 1, .neighbours = 1, .is_row_op = member.kind == Member::Kind::Rows};
  for (uint8_t axis = 0; axis < place.domain.size(); ++axis) {
    const int64_t size = graph_->symbols->hint(place.domain[axis]);
    const bool is_column = columns >> axis & 1;
    rows.numel *= size;
    if (is_column) rows.row *= size;
    if (size != 1) rows.neighbours = is_column ? rows.neighbours * size : 1;
  }
  place.new_rows = rows;
  return true;
}

// A value that the group computes must be read as a whole, element by element or row by row.
bool OpenGroup::can_read(const Member& member, const Place& place, const MemberOperand& operand) const {
  const auto access = access_of(place, member, operand);
  if (!access) return false;
  const Views::Source source = views_->source_of(operand.value);
  if (is_concat(source.value)) return false;
  if (member.kind == Member::Kind::Concat && source.is_conjugated) return false;  // a part is stored as it is, without an op
  const auto made = made_.find(source.value.index);
  if (made != made_.end() && (!source.offsets.empty() || !lies_as_made(made->second, *access, place))) return false;
  if (made == made_.end()) {
    if (member.kind == Member::Kind::Concat) return false;
    const auto pattern = pattern_of(source.value, *access, place.domain, place.columns, place.channels);
    return pattern && (!place.is_of_rows || *pattern == AccessPattern::Broadcast);
  }
  for (uint8_t axis = 0; axis < place.domain.size(); ++axis) {
    if (graph_->symbols->constant(place.domain[axis]) == 1) continue;
    const bool is_read = access->dim_of_axis[axis] >= 0, is_column = place.columns >> axis & 1;
    switch (made->second.extent) {
      case Extent::Element:
        if (!is_read || place.is_of_rows) return false;
        break;
      case Extent::Row:
        if (is_read == is_column) return false;
        break;
      case Extent::Segment:
      case Extent::Columns:
      case Extent::Channels:
        return false;
    }
  }
  return made->second.extent == Extent::Element || made->second.extent == Extent::Row;
}

// By axis, the dim of the member's result. Axes of size 1 do not matter.
std::vector<int8_t> OpenGroup::dims_of_result(const Member& member, const Place& place) const {
  std::vector<int8_t> dims(place.domain.size(), -1);
  for (size_t dim = 0; dim < member.sizes.size(); ++dim) {
    if (graph_->symbols->constant(member.sizes[dim]) == 1) continue;
    for (const uint8_t axis : place.axes_of_dim[dim]) dims[axis] = static_cast<int8_t>(member.order[dim]);
  }
  return dims;
}

// Whether the access reads a computed value in the order in which it is computed. Comparing sizes is not enough: dims of equal size may be
// swapped, for example in square images.
bool OpenGroup::lies_as_made(const Made& made, const Access& access, const Place& place) const {
  if (made.dim_of_axis.empty()) return goes_along(access);
  return access.sizes.empty() && access.dim_of_axis == moved({{}, made.dim_of_axis}, place).dim_of_axis;
}

std::optional<Access> OpenGroup::access_of(const Place& place, const Member& member, const MemberOperand& operand) const {
  const Views::Source source = views_->source_of(operand.value);
  const size_t rank = graph_->values[operand.value.index].sizes.size();
  if (source.sizes.size() > rank) return std::nullopt;
  const size_t first = operand.first_dim + rank - source.sizes.size();
  const bool is_padded = !source.offsets.empty();
  Access access{source.is_reshaped || is_padded ? source.sizes : Sizes{}, std::vector<int8_t>(place.domain.size(), -1), source.offsets};
  const auto walk_along = [&](size_t dim, size_t i) {
    for (const uint8_t axis : place.axes_of_dim[dim]) access.dim_of_axis[axis] = static_cast<int8_t>(i);
  };
  for (size_t i = 0; i < source.sizes.size(); ++i) {
    const auto size = graph_->symbols->constant(source.sizes[i]);
    if (size == 1) continue;
    const size_t dim = member.dim_of(first + i + (operand.joined && first + i > *operand.joined ? 1 : 0));
    if (operand.joined == dim) {
      const auto outer = graph_->symbols->constant(member.sizes[dim]), inner = graph_->symbols->constant(member.sizes[dim + 1]);
      if (!size || !outer || !inner || *size != *outer * *inner) return std::nullopt;
      walk_along(dim + 1, i);
    } else if (source.sizes[i] != member.sizes[dim]) {
      return std::nullopt;
    }
    if (is_padded && (operand.joined || (place.axes_of_dim[dim].size() > 1 && is_cut(source.value, access, i)))) return std::nullopt;
    walk_along(dim, i);
  }
  return access;
}

bool OpenGroup::is_cut_along(uint8_t axis) const {
  for (size_t i = 0; i < group_.loads.size(); ++i) {
    const int8_t dim = group_.accesses[i].dim_of_axis[axis];
    if (dim >= 0 && is_cut(group_.loads[i], group_.accesses[i], static_cast<size_t>(dim))) return true;
  }
  return false;
}

// Whether the tensor is padded or cropped along the dim.
bool OpenGroup::is_cut(ValueId value, const Access& access, size_t dim) const {
  return !access.offsets.empty() && (!access.offsets[dim].empty() || graph_->values[value.index].sizes[dim] != access.sizes[dim]);
}

bool OpenGroup::repeats_numbers_of_rows_of(int64_t elements) const {
  return elements < kShortRow && costs_->repeats_numbers_of_rows() && !group_.body.product;
}

// How the load varies along the columns, or, if the group has no rows, along the innermost axis whose size is not 1.
std::optional<AccessPattern> OpenGroup::pattern_of(ValueId id, const Access& access, const Sizes& domain, uint32_t columns,
                                                   uint32_t channels) const {
  const Value& value = graph_->values[id.index];
  const auto& symbols = *graph_->symbols;
  const Sizes& shape = access.sizes.empty() ? value.sizes : access.sizes;
  std::vector<int64_t> stride(shape.size(), 1);
  if (access.sizes.empty()) {
    stride = value.strides;
  } else {
    for (size_t i = shape.size(); i-- > 1;) stride[i - 1] = stride[i] * symbols.hint(shape[i]);
  }
  std::optional<int64_t> innermost;
  int64_t repeats = 1;  // of an element, one after the other along the innermost axes
  bool stands_still = true, stands_still_in_segment = true;
  std::vector<int64_t> inside(shape.size(), 1);  // by dim: the product of its axes' sizes so far
  for (size_t axis = domain.size(); axis-- > 0;) {
    const int64_t size = symbols.hint(domain[axis]);
    const int8_t dim = access.dim_of_axis[axis];
    int64_t step = 0;
    if (dim >= 0) {
      step = stride[static_cast<size_t>(dim)] * inside[static_cast<size_t>(dim)];
      inside[static_cast<size_t>(dim)] *= size;
    }
    if (size == 1 || (columns != 0 && !(columns >> axis & 1))) continue;
    if (!innermost) innermost = step;
    if (stands_still && step == 0) repeats *= size;
    stands_still = stands_still && step == 0;
    stands_still_in_segment = stands_still_in_segment && (step == 0 || (channels >> axis & 1));
  }
  if (columns == 0) {
    const bool is_repeated = !stands_still && repeats_numbers_of_rows_of(repeats);
    return innermost && *innermost == 0 && !is_repeated ? AccessPattern::Broadcast : AccessPattern::Dense;
  }
  if (stands_still) return AccessPattern::Broadcast;
  if (channels != 0 && stands_still_in_segment) return AccessPattern::PerSegment;
  return innermost == 1 ? std::optional(AccessPattern::Dense) : std::nullopt;
}

int64_t OpenGroup::elements_of_row() const {
  Sizes row;
  for (size_t axis = 0; axis < group_.domain.size(); ++axis) {
    if (group_.columns >> axis & 1) row.push_back(group_.domain[axis]);
  }
  return hint_of_numel(*graph_->symbols, row);
}

Access OpenGroup::moved(const Access& access, const Place& place) const {
  if (place.axes_of_axis.empty()) return access;
  Access moved{access.sizes, std::vector<int8_t>(place.domain.size(), -1), access.offsets};
  for (size_t old = 0; old < place.axes_of_axis.size(); ++old) {
    for (const uint8_t axis : place.axes_of_axis[old]) moved.dim_of_axis[axis] = access.dim_of_axis[old];
  }
  return moved;
}

void OpenGroup::add(uint32_t instr, const Member& member, const Place& place) {
  if (group_.members.empty()) {
    group_.body.compute = member.compute == at::kBool ? at::kFloat : member.compute;
    group_.device = *member.device;
  }
  for (Access& access : group_.accesses) access = moved(access, place);
  for (Group::Concat& concat : group_.concats) concat.dim_of_axis = moved({{}, concat.dim_of_axis}, place).dim_of_axis;
  for (auto& [value, made] : made_) {
    if (!made.dim_of_axis.empty()) made.dim_of_axis = moved({{}, made.dim_of_axis}, place).dim_of_axis;
  }
  group_.domain = place.domain;
  group_.columns = place.columns;
  group_.channels = place.channels;
  group_.body.by_rows = place.columns != 0;
  group_.body.has_short_rows = group_.body.by_rows && elements_of_row() < kShortRow;
  for (size_t i = 0; i < group_.loads.size(); ++i)
    group_.body.loads[i].pattern = *pattern_of(group_.loads[i], group_.accesses[i], group_.domain, group_.columns, group_.channels);

  Builder builder(*this, instr, member, place);
  if (member.kind == Member::Kind::Concat) {
    add_concat(instr, member, place);
  } else if (member.kind == Member::Kind::Reduction && place.summed != place.columns) {
    builder.result(0, builder.tensor(member.operands[0].value), Extent::Columns);
    made_[graph_->instrs[instr].outputs[0].index].over_rows = member.reduction;
  } else {
    member.build(builder);
  }
  for (size_t i = 0; i < group_.loads.size(); ++i) group_.body.loads[i].counts = counts(i);
  group_.members.push_back(instr);
}

// Whether consecutive elements of the load are consecutive counters. Kernels assume so if the innermost stride is one element
// (cuda/kernel_call.cpp, row_call.cpp). This must hold also for a row that is copied for its layout: so it must depend on all axes of the
// row, with no axis of rows between them.
bool OpenGroup::counts(size_t load) const {
  const Access& access = group_.accesses[load];
  if (!views_->are_counters(group_.loads[load]) || group_.body.loads[load].pattern != AccessPattern::Dense || !access.offsets.empty())
    return false;
  if (group_.columns == 0) return true;
  std::optional<int8_t> outer;
  for (uint8_t axis = 0; axis < group_.domain.size(); ++axis) {
    if (graph_->symbols->constant(group_.domain[axis]) == 1) continue;
    const int8_t dim = access.dim_of_axis[axis];
    if (!(group_.columns >> axis & 1)) {
      if (outer && dim >= 0) return false;
      continue;
    }
    if (dim < 0 || (outer && dim != *outer && dim != *outer + 1)) return false;
    outer = dim;
  }
  return true;
}

void OpenGroup::add_concat(uint32_t instr, const Member& member, const Place& place) {
  Group::Concat concat{graph_->instrs[instr].outputs[0], {}, member.sizes, member.concat_dim, member.is_stack};
  for (const MemberOperand& part : member.operands) {
    concat.parts.push_back(part.value);
    views_->append_views(part.value, group_.views);
  }
  concat.dim_of_axis.resize(place.domain.size(), -1);
  for (size_t dim = 0; dim < place.axes_of_dim.size(); ++dim) {
    for (const uint8_t axis : place.axes_of_dim[dim]) concat.dim_of_axis[axis] = static_cast<int8_t>(dim);
  }
  group_.concats.push_back(std::move(concat));
}

std::vector<ValueId> OpenGroup::unread() const {
  std::vector<ValueId> found;
  for (const ValueId factor : group_.factors) {  // with its own layout, even if a view of it is loaded
    if (!loads(factor) && std::find(found.begin(), found.end(), factor) == found.end()) found.push_back(factor);
  }
  for (const uint32_t member : group_.members) {
    capture::for_each_use(graph_->instrs[member], [&](ValueId value) {
      if (!value.defined()) return;
      const ValueId source = views_->source_of(value).value;
      if (!makes(source) && !loads(source) && std::find(found.begin(), found.end(), value) == found.end()) found.push_back(value);
    });
  }
  return found;
}

void OpenGroup::store(ValueId value) {
  const Made& made = made_.at(value.index);
  group_.stores.push_back(value);
  group_.shapes.push_back(graph_->values[value.index].sizes);
  auto order = *dense_order(*graph_, graph_->values[value.index]);
  group_.orders.push_back(std::is_sorted(order.begin(), order.end()) ? std::vector<uint8_t>() : std::move(order));
  group_.body.stores.push_back({made.value, graph_->values[value.index].dtype, made.extent, 0, made.over_rows});
}

void OpenGroup::store_parts(const Group::Concat& concat) {
  for (const ValueId part : concat.parts) {
    const Made& made = made_.at(views_->source_of(part).value.index);
    group_.body.stores.push_back({made.value, graph_->values[part.index].dtype, made.extent});
  }
}

}  // namespace hindcast::codegen
