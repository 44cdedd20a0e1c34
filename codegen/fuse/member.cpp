#include "codegen/fuse/member.h"

#include "capture/ops/op_facts.h"
#include "codegen/fuse/pointwise_ops.h"
#include "codegen/fuse/row_ops.h"
#include "codegen/fuse/views.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Value;
using capture::ValueId;
using capture::ViewKind;

bool is_complex(at::ScalarType type) { return type == at::kComplexFloat || type == at::kComplexDouble; }

bool is_integer(at::ScalarType type) {
  return type == at::kLong || type == at::kInt || type == at::kShort || type == at::kChar || type == at::kByte;
}

// The compute type for results of a type.
std::optional<at::ScalarType> arithmetic_of(at::ScalarType type) {
  if (type == at::kDouble || is_complex(type)) return type;
  return is_float(type) ? std::optional(at::kFloat) : std::nullopt;
}

bool is_dense(const Value& value) { return value.defined && value.strides.size() == value.sizes.size() && value.sizes.size() <= kMaxRank; }

bool has_list_or_tensor_constant(const Arg& arg) {
  return arg.kind == Arg::Kind::ValueList || arg.kind == Arg::Kind::OptionalValueList || arg.kind == Arg::Kind::IntList ||
         (arg.kind == Arg::Kind::Constant && arg.constant.isTensor());
}

class Description {
 public:
  Description(const Graph& graph, const Instr& instr) : graph_(graph), instr_(instr) {}

  std::optional<Member> run() {
    if (instr_.kind != InstrKind::Op && instr_.kind != InstrKind::AddGrads && instr_.kind != InstrKind::Mutate) return std::nullopt;
    if (!results_fit()) return std::nullopt;
    if (!is_known() || !operands_fit()) return std::nullopt;
    return std::move(member_);
  }

 private:
  bool is_known() {
    if (instr_.kind == InstrKind::Mutate) return in_place() || scattered();
    if (instr_.kind == InstrKind::Op) {
      if (const PointwiseOp* op = find_op(name(), instr_.args)) return pointwise(*op, instr_.args);
    }
    if (makes_mask()) return false;  // reductions and all other kinds need arithmetic
    if (instr_.kind == InstrKind::AddGrads) return sum_of_gradients();
    if (is_named("aten::_to_copy", "")) return number_of_mask();
    if (const RowOp* op = find_row_op(*instr_.op)) return !makes_complex() && rows(*op);
    if (is_named("aten::cat", "") || is_named("aten::stack", "")) return concat();
    if (is_named("aten::mm", "") || is_named("aten::addmm", "") || is_named("aten::bmm", "")) return product();
    const auto kind = reduction_kind();
    return kind && reduction(*kind);
  }

  const c10::OperatorName& name() const { return instr_.op->operator_name(); }
  bool is_named(const char* op, const char* overload) const { return name().name == op && name().overload_name == overload; }
  const Value& value(ValueId id) const { return graph_.values[id.index]; }

  const PointwiseOp* find_op(const c10::OperatorName& op, const std::vector<Arg>& args) const {
    const bool of_complex = std::any_of(args.begin(), args.end(), [&](const Arg& arg) {
      if (arg.kind == Arg::Kind::Value) return arg.values[0].defined() && is_complex(value(arg.values[0]).dtype);
      return arg.constant.isComplexDouble();
    });
    return of_complex ? find_complex_op(op) : find_pointwise_op(op);
  }

  // Whether one compute type is right for all results, or the result is a mask.
  bool results_fit() {
    bool any = false;
    for (const ValueId id : instr_.outputs) {
      if (!id.defined() || !value(id).defined) continue;
      const Value& result = value(id);
      if (!is_dense(result) || result.is_view || (member_.device && *member_.device != result.device)) return false;
      member_.device = result.device;
      if (is_mask(result)) {
        if (instr_.outputs.size() != 1) return false;
        member_.compute = at::kBool;
        member_.bytes = bytes_of(graph_, result);
        return true;
      }
      const auto arithmetic = arithmetic_of(result.dtype);
      if (!arithmetic || (any && *arithmetic != member_.compute)) return false;
      member_.compute = *arithmetic;
      member_.bytes = std::max(member_.bytes, bytes_of(graph_, result));
      any = true;
    }
    return any;
  }

  // Whether ATen converts this operand to the result's type, by type promotion. A kernel does the same unless the result is a 16-bit float.
  // Python's `x * 1.001` and `x / 3` save such tensors, and the gradients of amax and amin divide by an integer count.
  bool is_converted(const Value& value) const {
    const Value& result = this->value(instr_.outputs[0]);
    if (result.dtype != at::kFloat && result.dtype != at::kDouble && !is_complex(result.dtype)) return false;
    if (value.dtype == at::kDouble && value.sizes.empty()) {
      // Of two operands without dims, ATen promotes to double unless the double is a wrapped number. In place it computes in double first.
      return !result.sizes.empty() || instr_.kind == InstrKind::Op;
    }
    return is_integer(value.dtype);
  }

  static bool is_mask(const Value& value) { return value.dtype == at::kBool; }
  bool makes_mask() const { return member_.compute == at::kBool; }
  bool makes_complex() const { return is_complex(member_.compute); }

  // For ops on a device, ATen reads such a CPU tensor on the host, and converts it to the compute type.
  bool is_number_of_host(const Value& read) const {
    return read.defined && read.sizes.empty() && read.device.is_cpu() && !member_.device->is_cpu() &&
           (is_float(read.dtype) || is_integer(read.dtype)) && !makes_mask() && !makes_complex();
  }

  bool sum_of_gradients() {
    for (const ValueId id : {instr_.inputs[0], instr_.inputs[1]}) {
      if (!id.defined() || value(id).dtype != value(instr_.outputs[0]).dtype) return false;
      member_.operands.push_back({id});
    }
    member_.build = [&instr = instr_, add = makes_complex() ? FunctorName("complex_add") : FunctorName("add")](BodyBuilder& body) {
      const Operand first = body.tensor(instr.inputs[0]);
      body.result(0, body.op(add, {first, body.tensor(instr.inputs[1])}), Extent::Element);
    };
    return domain_is_result();
  }

  // A conversion from bool to 1 or 0: the derivatives of functions such as abs or relu multiply by a comparison.
  bool number_of_mask() {
    const ValueId mask = instr_.args[0].values[0];
    if (!is_mask(value(mask)) || makes_complex()) return false;
    member_.operands.push_back({mask});
    member_.build = [mask](BodyBuilder& body) {
      body.result(0, body.op("where", {body.tensor(mask), body.number(1), body.number(0)}), Extent::Element);
    };
    return domain_is_result();
  }

  // A Mutate of a whole value is the op without the underscore, since it works on a fresh copy.
  bool in_place() {
    if (name().name.back() != '_') return false;
    c10::OperatorName functional = name();
    functional.name.pop_back();
    std::vector<Arg> args = instr_.args;
    args[instr_.target_arg] = Arg{Arg::Kind::Value, {}, {instr_.base}, {}};
    const PointwiseOp* op = find_op(functional, args);
    if (op == nullptr || !pointwise(*op, args)) return false;
    // If it writes to a view, other tensor operands would be broadcast to the shape of the view.
    return instr_.views.empty() || (member_.operands.size() == 1 && std::all_of(instr_.views.begin(), instr_.views.end(), shows_each_once));
  }

  bool scattered() {
    if (!is_named("aten::scatter_add_", "") || !instr_.views.empty() || makes_mask() || makes_complex()) return false;
    return scatter_add(graph_, instr_, instr_.base, member_) && rows_are_in_order();
  }

  static bool shows_each_once(const capture::ViewStep& view) {
    const ViewKind kind = capture::facts_of(view.op.operator_name()).view;
    return kind == ViewKind::Reshape || kind == ViewKind::Transpose || kind == ViewKind::Alias;
  }

  bool pointwise(const PointwiseOp& op, const std::vector<Arg>& args) {
    if (instr_.outputs.size() != 1 || (op.accepts && !op.accepts(args))) return false;
    if (op.gives_mask != makes_mask()) return false;
    for (uint32_t i = 0; i < args.size(); ++i) {
      if (!add_operand(op, args[i], i)) return false;
    }
    if (op.gives_mask ? !compares_alike(args) : rounds_an_operand(args)) return false;
    std::vector<Arg> rounded = args;
    if (!round_numbers(op, rounded)) return false;
    member_.build = [rounded, &op](BodyBuilder& body) { body.result(0, op.build(body, rounded), Extent::Element); };
    return !member_.operands.empty() && domain_is_result();
  }

  // Adds argument i to the operands, if it is a tensor. Returns false if a kernel cannot read it.
  bool add_operand(const PointwiseOp& op, const Arg& arg, uint32_t i) {
    if (has_list_or_tensor_constant(arg)) return false;
    if (arg.kind == Arg::Kind::Constant && arg.constant.isNone() && !(op.may_be_none >> i & 1)) return false;
    if (arg.kind != Arg::Kind::Value) return true;
    if (!arg.values[0].defined()) return false;
    const bool is_counter = op.counters >> i & 1;  // has more digits than a scalar can hold
    if (is_number_of_host(value(arg.values[0])) && !is_counter) {
      member_.numbers.push_back(arg.values[0]);
      return true;
    }
    const at::ScalarType type = value(arg.values[0]).dtype;
    const bool is_read_as_it_is = (op.mask_args >> i & 1 && type == at::kBool) || (is_counter && is_integer(type));
    if (!is_float(type) && !is_complex(type) && !is_read_as_it_is && !is_converted(value(arg.values[0]))) return false;
    member_.operands.push_back({arg.values[0]});
    return true;
  }

  // Whether ATen rounds an operand without dims to the 16 bits of the others, as the temperature in float32 of scores in bfloat16. Its
  // mul(), and div() of the divisor, do not.
  bool rounds_an_operand(const std::vector<Arg>& args) const {
    const Value& result = value(instr_.outputs[0]);
    if (!is_of_16_bits(result.dtype) || result.sizes.empty() || !member_.device->is_cpu()) return false;
    const auto is_wide = [&](const MemberOperand& operand) {
      const Value& read = value(operand.value);
      return !read.sizes.empty() && is_float(read.dtype) && !is_of_16_bits(read.dtype);
    };
    if (std::any_of(member_.operands.begin(), member_.operands.end(), is_wide)) return false;
    std::string_view op = name().name;
    if (op.ends_with('_')) op.remove_suffix(1);
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].kind != Arg::Kind::Value || op == "aten::mul" || (op == "aten::div" && i == 1)) continue;
      const Value& read = value(args[i].values[0]);
      if (read.sizes.empty() && is_float(read.dtype) && read.dtype != result.dtype) return true;
    }
    return false;
  }

  // Rounds the numbers that ATen rounds. Returns false if they are known only when the kernel runs.
  bool round_numbers(const PointwiseOp& op, std::vector<Arg>& args) const {
    const at::ScalarType type = op.gives_mask ? compared_type().value_or(at::kBool) : value(instr_.outputs[0]).dtype;
    if (!is_of_16_bits(type) || !member_.device->is_cpu()) return true;
    if (op.accepts_in_16_bits && !op.accepts_in_16_bits(args, type)) return false;
    for (uint32_t i = 0; i < args.size(); ++i) {
      if (!(op.rounded >> i & 1)) continue;
      if (args[i].kind == Arg::Kind::Value && value(args[i].values[0]).dtype == type) continue;
      if (args[i].kind != Arg::Kind::Constant) return false;
      if (args[i].constant.isNone()) continue;
      const double number = args[i].constant.toScalar().toDouble();
      const double rounded = type == at::kHalf ? at::Half(static_cast<float>(number)) : at::BFloat16(static_cast<float>(number));
      if (rounded != number && !std::isnan(number)) args[i].constant = rounded;
    }
    return true;
  }

  // The type of a comparison's operands, apart from bools; nullopt if there is no other.
  std::optional<at::ScalarType> compared_type() const {
    for (const MemberOperand& operand : member_.operands) {
      if (const at::ScalarType type = value(operand.value).dtype; type != at::kBool) return type;
    }
    return std::nullopt;
  }

  // Whether a comparison's operands have the same type. ATen compares in the common type, and rounds an operand of another type to it; such
  // comparisons are not fused. A number is rounded to 16 bits on the CPU only (round_numbers); on other devices it must be 0.
  bool compares_alike(const std::vector<Arg>& args) {
    const auto type = compared_type();
    if (!type) return true;
    for (const MemberOperand& operand : member_.operands) {
      const at::ScalarType own = value(operand.value).dtype;
      if (own != at::kBool && own != *type) return false;
    }
    member_.compute = *arithmetic_of(*type);
    const bool is_short = is_of_16_bits(*type);
    return std::all_of(args.begin(), args.end(), [&](const Arg& arg) {
      if (arg.kind == Arg::Kind::Value || !is_short) return true;
      if (arg.kind != Arg::Kind::Constant || !arg.constant.isScalar()) return false;
      return member_.device->is_cpu() || arg.constant.toScalar().toDouble() == 0;
    });
  }

  // The domain is the result's shape. Operands are broadcast to it, aligned at the last dim.
  bool domain_is_result() {
    const Value& result = value(instr_.outputs[0]);
    const auto order = dense_order(graph_, result);
    if (!order) return false;
    member_.sizes = result.sizes;
    put_in_order(*order);
    for (MemberOperand& operand : member_.operands) {
      const size_t rank = value(operand.value).sizes.size();
      if (rank > result.sizes.size()) return false;
      operand.first_dim = result.sizes.size() - rank;
    }
    return true;
  }

  void put_in_order(const std::vector<uint8_t>& order) {
    Sizes sizes;
    uint32_t row_dims = 0;
    for (size_t dim = 0; dim < order.size(); ++dim) {
      sizes.push_back(member_.sizes[order[dim]]);
      row_dims |= (member_.row_dims >> order[dim] & 1) << dim;
    }
    member_.sizes = std::move(sizes);
    member_.row_dims = row_dims;
    member_.order = order;
  }

  // Keeps the dims in the order of the tensors.
  void keep_order() {
    for (size_t i = 0; i < member_.sizes.size(); ++i) member_.order.push_back(static_cast<uint8_t>(i));
  }

  // Puts the dims in the order of memory, unless that changes the order of the dims that are not reduced: the result must be contiguous.
  void put_in_order_of(const Value& reduced) {
    const auto order = dense_order(graph_, reduced);
    std::vector<uint8_t> staying;
    if (order)
      std::copy_if(order->begin(), order->end(), std::back_inserter(staying), [&](uint8_t dim) { return !(member_.row_dims >> dim & 1); });
    if (order && std::is_sorted(staying.begin(), staying.end())) return put_in_order(*order);
    keep_order();
  }

  bool rows(const RowOp& op) {
    for (const Arg& arg : instr_.args) {
      if (arg.kind == Arg::Kind::Value && (!arg.values[0].defined() || !is_dense(value(arg.values[0])))) return false;
    }
    return op(graph_, instr_, member_) && rows_are_in_order();
  }

  bool rows_are_in_order() {
    member_.kind = Member::Kind::Rows;
    keep_order();
    return results_are_contiguous();
  }

  std::optional<Reduction::Kind> reduction_kind() const {
    if (is_named("aten::sum", "dim_IntList") || is_named("aten::sum", "")) return Reduction::Kind::Sum;
    if (makes_complex()) return std::nullopt;
    if (is_named("aten::mean", "dim") || is_named("aten::mean", "")) return Reduction::Kind::Mean;
    if (is_named("aten::amax", "")) return Reduction::Kind::Max;
    if (is_named("aten::amin", "")) return Reduction::Kind::Min;
    return std::nullopt;
  }

  // (self, dim, keepdim), plus a dtype for sums and means. Over all dims: (self, dtype).
  bool reduction(Reduction::Kind kind) {
    const auto& args = instr_.args;
    if (args[0].kind != Arg::Kind::Value || !args[0].values[0].defined()) return false;
    const bool is_of_all = name().overload_name.empty() && args.size() == 2;
    if (!is_of_all && (args[1].kind != Arg::Kind::Constant || !args[1].constant.isIntList() || args[1].constant.toIntList().empty()))
      return false;
    const size_t dtype = is_of_all ? 1 : 3;
    if (args.size() > dtype && (args[dtype].kind != Arg::Kind::Constant || !args[dtype].constant.isNone())) return false;
    const ValueId self = args[0].values[0];
    member_.kind = Member::Kind::Reduction;
    member_.reduction = kind;
    member_.sizes = value(self).sizes;
    const auto rank = static_cast<int64_t>(member_.sizes.size());
    if (rank == 0 || rank > static_cast<int64_t>(kMaxRank)) return false;
    if (is_of_all) member_.row_dims = (1u << rank) - 1;
    for (const int64_t dim : is_of_all ? std::vector<int64_t>() : args[1].constant.toIntVector())
      member_.row_dims |= 1u << (dim < 0 ? dim + rank : dim);
    put_in_order_of(value(self));
    member_.operands.push_back({self, 0});
    if (kind != Reduction::Kind::Sum && hint_of_numel(*graph_.symbols, member_.sizes) == 0) return false;
    member_.build = [self, kind, row = row()](BodyBuilder& body) {
      const bool is_mean = kind == Reduction::Kind::Mean;
      const Reduction of_row{is_mean ? Reduction::Kind::Sum : kind, Reduction::Over::Row};
      const Operand reduced = body.reduce(of_row, body.tensor(self));
      body.result(0, is_mean ? body.op("mul", {reduced, body.inverse_of(row, 1)}) : reduced, Extent::Row);
    };
    return results_are_contiguous();
  }

  // The sizes of a row.
  Sizes row() const {
    Sizes row;
    for (size_t dim = 0; dim < member_.sizes.size(); ++dim) {
      if (member_.row_dims >> dim & 1) row.push_back(member_.sizes[dim]);
    }
    return row;
  }

  // (tensors, dim)
  bool concat() {
    const auto& args = instr_.args;
    if (args[0].kind != Arg::Kind::ValueList || args[0].values.empty() || args[1].kind != Arg::Kind::Constant) return false;
    member_.kind = Member::Kind::Concat;
    member_.is_stack = name().name == "aten::stack";
    member_.sizes = value(args[0].values[0]).sizes;
    const auto rank = static_cast<int64_t>(value(instr_.outputs[0]).sizes.size());
    const int64_t dim = args[1].constant.toInt();
    member_.concat_dim = static_cast<uint8_t>(dim < 0 ? dim + rank : dim);
    for (const ValueId part : args[0].values) {
      if (!part.defined() || value(part).dtype != value(instr_.outputs[0]).dtype || value(part).sizes != member_.sizes) return false;
      member_.operands.push_back({part, 0});
    }
    keep_order();
    return results_are_contiguous();
  }

  // (mat1, mat2), or (self, mat1, mat2, beta, alpha)
  bool product() {
    const auto& args = instr_.args;
    const bool is_added = name().name == "aten::addmm";
    const Value& result = value(instr_.outputs[0]);
    if (makes_complex() || !is_contiguous(graph_, result)) return false;
    if (is_added && !(is_one(args[3]) && is_one(args[4]))) return false;
    const size_t first = is_added ? 1 : 0;
    std::array<bool, 2> is_transposed{};
    for (size_t i = 0; i < 2; ++i) {
      const ValueId id = args[first + i].values[0];
      if (!id.defined() || value(id).dtype != result.dtype || value(id).device != result.device) return false;
      const auto transposed = is_transposed_in_memory(value(id));
      if (!transposed) return false;
      is_transposed[i] = *transposed;
      member_.factors.push_back(id);
    }
    member_.kind = Member::Kind::Product;
    member_.product = BodyProduct{result.dtype, is_transposed[0], is_transposed[1]};
    const size_t rank = result.sizes.size();
    const auto hint = [&](capture::ExprId size) { return graph_.symbols->hint(size); };
    member_.product_shape = ProductShape{rank == 3 ? hint(result.sizes[0]) : 1, hint(result.sizes[rank - 2]), hint(result.sizes[rank - 1]),
                                         hint(value(member_.factors[1]).sizes[rank - 2]), result.dtype};
    if (is_added) {
      const ValueId self = args[0].values[0];
      if (!self.defined() || value(self).dtype != result.dtype) return false;
      member_.operands.push_back({self});
    }
    member_.build = [is_added, &instr = instr_](BodyBuilder& body) {
      const Operand product = body.product();
      body.result(0, is_added ? body.op("add", {product, body.tensor(instr.args[0])}) : product, Extent::Element);
    };
    return domain_is_result();
  }

  static bool is_one(const Arg& arg) {
    return arg.kind == Arg::Kind::Constant && arg.constant.isScalar() && arg.constant.toScalar().toComplexDouble() == 1.0;
  }

  // For the last two dims; nullopt if neither is contiguous.
  static std::optional<bool> is_transposed_in_memory(const Value& factor) {
    if (!is_dense(factor) || factor.sizes.size() < 2) return std::nullopt;
    if (factor.strides.end()[-1] == 1) return false;
    return factor.strides.end()[-2] == 1 ? std::optional(true) : std::nullopt;
  }

  bool results_are_contiguous() const {
    return std::all_of(instr_.outputs.begin(), instr_.outputs.end(),
                       [&](ValueId id) { return !id.defined() || !value(id).defined || is_contiguous(graph_, value(id)); });
  }

  // Whether the compute type represents the operand exactly. Other conversions are inexact in ATen too.
  bool is_read_exactly(const Value& read) const {
    const bool in_double = member_.compute == at::kDouble || member_.compute == at::kComplexDouble;
    if (is_complex(read.dtype)) return makes_complex() && (read.dtype == at::kComplexFloat || in_double);
    if (is_float(read.dtype)) return read.dtype != at::kDouble || in_double || is_converted(read);
    return read.dtype == at::kBool || read.dtype == at::kLong || member_.kind == Member::Kind::Pointwise;
  }

  bool operands_fit() const {
    return std::all_of(member_.operands.begin(), member_.operands.end(), [&](const MemberOperand& operand) {
      const Value& read = value(operand.value);
      const size_t dims = read.sizes.size() + (operand.joined ? 1 : 0);
      return is_read_exactly(read) && is_dense(read) && read.device == member_.device && operand.first_dim + dims <= member_.sizes.size();
    });
  }

  const Graph& graph_;
  const Instr& instr_;
  Member member_;
};

}  // namespace

int64_t bytes_of(const Graph& graph, const Value& value) {
  return hint_of_numel(*graph.symbols, value.sizes) * static_cast<int64_t>(c10::elementSize(value.dtype));
}

std::optional<Member> describe(const Graph& graph, const Instr& instr) { return Description(graph, instr).run(); }

}  // namespace hindcast::codegen
