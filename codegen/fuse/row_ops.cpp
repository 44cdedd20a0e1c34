#include "codegen/fuse/row_ops.h"

#include "base/fork.h"
#include "capture/graph/args.h"

#include <ATen/core/Reduction.h>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::is_tensor;
using capture::ValueId;

constexpr Reduction kSumOfRow{Reduction::Kind::Sum, Reduction::Over::Row};
constexpr Reduction kMaxOfRow{Reduction::Kind::Max, Reduction::Over::Row};
constexpr Reduction kMeanOfRow{Reduction::Kind::Mean, Reduction::Over::Row};
constexpr Reduction kM2OfRow{Reduction::Kind::M2, Reduction::Over::Row};
constexpr Reduction kSumOfSegment{Reduction::Kind::Sum, Reduction::Over::Segment};
constexpr Reduction kSumOfSegments{Reduction::Kind::Sum, Reduction::Over::Segments};

const Sizes& sizes_of(const Graph& graph, const Arg& arg) { return graph.values[arg.values[0].index].sizes; }

uint32_t last_dims(size_t rank, size_t count) { return ((1u << rank) - 1) & ~((1u << (rank - count)) - 1); }

size_t list_length(const Arg& arg) {
  return arg.kind == Arg::Kind::IntList ? arg.exprs.size() : arg.constant.isIntList() ? arg.constant.toIntList().size() : 0;
}

bool is_wanted(const Graph& graph, const Instr& instr, size_t output) {
  return output < instr.outputs.size() && instr.outputs[output].defined() && graph.values[instr.outputs[output].index].defined;
}

// The only dim of a constant dim argument, counted from the front; nullopt if the argument is not a constant or has another number of dims.
std::optional<size_t> only_dim(const Arg& arg, size_t rank) {
  if (arg.kind != Arg::Kind::Constant) return std::nullopt;
  const bool is_list = arg.constant.isIntList();
  if (is_list ? arg.constant.toIntVector().size() != 1 : !arg.constant.isInt()) return std::nullopt;
  const int64_t dim = is_list ? arg.constant.toIntVector()[0] : arg.constant.toInt();
  const int64_t from_front = dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
  // ATen also takes -1 for a tensor without dimensions.
  const bool has_rows = 0 <= from_front && from_front < static_cast<int64_t>(rank);
  return has_rows ? std::optional(static_cast<size_t>(from_front)) : std::nullopt;
}

bool has_elements(const Graph& graph, const Member& member) { return hint_of_numel(*graph.symbols, member.sizes) != 0; }

// (input, normalized_shape, weight, bias, eps) -> (output, mean, rstd)
bool layer_norm(const Graph& graph, const Instr& instr, Member& member) {
  const auto& args = instr.args;
  const at::ScalarType type = graph.values[args[0].values[0].index].dtype;
  member.sizes = sizes_of(graph, args[0]);
  const size_t rank = member.sizes.size(), inner = list_length(args[1]);
  if (inner == 0 || inner > rank || !has_elements(graph, member)) return false;
  member.row_dims = last_dims(rank, inner);
  member.operands.push_back({args[0].values[0], 0});
  for (const size_t i : {2, 3}) {
    if (is_tensor(args[i])) member.operands.push_back({args[i].values[0], rank - inner});
  }
  const auto is_of_type = [&](capture::ValueId value) { return graph.values[value.index].dtype == type; };
  if (!std::all_of(member.operands.begin(), member.operands.end(), [&](const MemberOperand& operand) { return is_of_type(operand.value); }))
    return false;
  const Sizes row(member.sizes.end() - static_cast<std::ptrdiff_t>(inner), member.sizes.end());
  member.forward = RowForward::Norm;
  member.build = [&graph, &instr, &args, row](BodyBuilder& body) {
    const Operand input = body.tensor(args[0]);
    const Operand mean = body.reduce(kMeanOfRow, input);
    const Operand variance = body.op("mul", {body.reduce(kM2OfRow, input), body.inverse_of(row, 1)});
    const Operand rstd = body.op("rsqrt", {body.op("add", {variance, body.scalar(args[4])})});
    Operand output = body.op("mul", {body.op("sub", {input, mean}), rstd});
    if (is_tensor(args[2])) output = body.op("mul", {output, body.tensor(args[2])});
    if (is_tensor(args[3])) output = body.op("add", {output, body.tensor(args[3])});
    if (is_wanted(graph, instr, 0)) body.result(0, output, Extent::Element);
    if (is_wanted(graph, instr, 1)) body.result(1, mean, Extent::Row);
    if (is_wanted(graph, instr, 2)) body.result(2, rstd, Extent::Row);
  };
  return true;
}

// (self, dim, half_to_float)
RowOp softmax(bool log) {
  return [log](const Graph& graph, const Instr& instr, Member& member) {
    const auto& args = instr.args;
    member.sizes = sizes_of(graph, args[0]);
    const auto dim = only_dim(args[1], member.sizes.size());
    if (!dim || !args[2].constant.isBool() || args[2].constant.toBool() || !has_elements(graph, member)) return false;
    member.row_dims = 1u << *dim;
    member.operands.push_back({args[0].values[0], 0});
    member.forward = log ? RowForward::LogSoftmax : RowForward::Softmax;
    member.build = [&args, log](BodyBuilder& body) {
      const Operand input = body.tensor(args[0]);
      const Operand distance = body.op("sub", {input, body.reduce(kMaxOfRow, input)});
      const Operand power = body.op("exp", {distance});
      const Operand sum = body.reduce(kSumOfRow, power);
      body.result(0, log ? body.op("sub", {distance, body.op("log", {sum})}) : body.op("div", {power, sum}), Extent::Element);
    };
    return true;
  };
}

// (self, dim, keepdim)
bool logsumexp(const Graph& graph, const Instr& instr, Member& member) {
  const auto& args = instr.args;
  member.sizes = sizes_of(graph, args[0]);
  const auto dim = only_dim(args[1], member.sizes.size());
  if (!dim || !has_elements(graph, member)) return false;
  member.row_dims = 1u << *dim;
  member.operands.push_back({args[0].values[0], 0});
  member.forward = RowForward::LogSumExp;
  member.build = [&args](BodyBuilder& body) {
    const Operand input = body.tensor(args[0]);
    // With an infinite maximum, the differences would be NaN.
    const Operand largest = body.reduce(kMaxOfRow, input);
    const Operand from = body.op("where", {body.op("isinf", {largest}), body.number(0), largest});
    const Operand sum = body.reduce(kSumOfRow, body.op("exp", {body.op("sub", {input, from})}));
    body.result(0, body.op("add", {body.op("log", {sum}), from}), Extent::Row);
  };
  return true;
}

// (self, target, reduction)
bool mse_loss(const Graph& graph, const Instr& instr, Member& member) {
  const auto& args = instr.args;
  if (!is_tensor(args[0]) || !is_tensor(args[1]) || args[2].kind != Arg::Kind::Constant) return false;
  const int64_t reduction = args[2].constant.toInt();
  member.sizes = sizes_of(graph, args[0]);
  if (reduction == at::Reduction::None || member.sizes.empty() || sizes_of(graph, args[1]) != member.sizes) return false;
  const at::ScalarType type = graph.values[instr.outputs[0].index].dtype;
  for (const size_t i : {0, 1}) {
    if (graph.values[args[i].values[0].index].dtype != type) return false;
    member.operands.push_back({args[i].values[0], 0});
  }
  if (!has_elements(graph, member)) return false;
  member.row_dims = last_dims(member.sizes.size(), member.sizes.size());
  member.build = [&args, row = member.sizes, reduction](BodyBuilder& body) {
    const Operand distance = body.op("sub", {body.tensor(args[0]), body.tensor(args[1])});
    const Operand sum = body.reduce(kSumOfRow, body.op("mul", {distance, distance}));
    body.result(0, reduction == at::Reduction::Mean ? body.op("mul", {sum, body.inverse_of(row, 1)}) : sum, Extent::Row);
  };
  return true;
}

// (grad, input, normalized_shape, mean, rstd, weight, bias, mask) -> (input, weight, bias)
bool layer_norm_backward(const Graph& graph, const Instr& instr, Member& member) {
  const auto& args = instr.args;
  member.sizes = sizes_of(graph, args[1]);
  const size_t rank = member.sizes.size(), inner = list_length(args[2]);
  if (inner == 0 || inner > rank || sizes_of(graph, args[3]).size() != rank) return false;
  member.row_dims = last_dims(rank, inner);
  for (const size_t i : {0, 1, 3, 4}) member.operands.push_back({args[i].values[0], 0});
  if (is_tensor(args[5])) member.operands.push_back({args[5].values[0], rank - inner});
  const Sizes row(member.sizes.end() - static_cast<std::ptrdiff_t>(inner), member.sizes.end());
  member.build = [&graph, &instr, &args, row](BodyBuilder& body) {
    const Operand gradient = body.tensor(args[0]), rstd = body.tensor(args[4]);
    const Operand normal = body.op("mul", {body.op("sub", {body.tensor(args[1]), body.tensor(args[3])}), rstd});
    if (is_wanted(graph, instr, 0)) {
      const Operand scaled = is_tensor(args[5]) ? body.op("mul", {gradient, body.tensor(args[5])}) : gradient;
      const Operand share = body.inverse_of(row, 1);
      const Operand mean = body.op("mul", {body.reduce(kSumOfRow, scaled), share});
      const Operand slope = body.op("mul", {body.reduce(kSumOfRow, body.op("mul", {scaled, normal})), share});
      const Operand centred = body.op("sub", {body.op("sub", {scaled, mean}), body.op("mul", {normal, slope})});
      body.result(0, body.op("mul", {rstd, centred}), Extent::Element);
    }
    if (is_wanted(graph, instr, 1)) body.result(1, body.op("mul", {gradient, normal}), Extent::Columns);
    if (is_wanted(graph, instr, 2)) body.result(2, gradient, Extent::Columns);
  };
  return true;
}

// (grad, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask) -> (input, weight, bias).
// A row is one channel of all images.
bool batch_norm_backward(const Graph& graph, const Instr& instr, Member& member) {
  const auto& args = instr.args;
  if (args[7].kind != Arg::Kind::Constant || !args[7].constant.isBool()) return false;
  const bool train = args[7].constant.toBool();
  const size_t mean = train ? 5 : 3, deviation = train ? 6 : 4;
  member.sizes = sizes_of(graph, args[1]);
  const size_t rank = member.sizes.size();
  if (rank < 2 || !is_tensor(args[mean]) || !is_tensor(args[deviation])) return false;
  member.row_dims = ((1u << rank) - 1) & ~2u;
  for (const size_t i : {0, 1}) member.operands.push_back({args[i].values[0], 0});
  for (const size_t i : {mean, deviation}) member.operands.push_back({args[i].values[0], 1});
  if (is_tensor(args[2])) member.operands.push_back({args[2].values[0], 1});
  Sizes row = member.sizes;
  row.erase(row.begin() + 1);
  member.build = [&graph, &instr, &args, row, train, mean, deviation](BodyBuilder& body) {
    const Operand gradient = body.tensor(args[0]);
    Operand rstd = body.tensor(args[deviation]);
    if (!train) rstd = body.op("rsqrt", {body.op("add", {rstd, body.scalar(args[8])})});
    const Operand centred = body.op("sub", {body.tensor(args[1]), body.tensor(args[mean])});
    const auto sum = [&] { return body.reduce(kSumOfRow, gradient); };
    const auto product = [&] { return body.reduce(kSumOfRow, body.op("mul", {gradient, centred})); };
    const bool needs_sums = train && is_wanted(graph, instr, 0);
    const Operand summed = needs_sums || is_wanted(graph, instr, 2) ? sum() : Operand{};
    const Operand dot = needs_sums || is_wanted(graph, instr, 1) ? product() : Operand{};
    if (is_wanted(graph, instr, 0)) {
      const Operand scale = is_tensor(args[2]) ? body.op("mul", {rstd, body.tensor(args[2])}) : rstd;
      Operand rest = gradient;
      if (train) {
        const Operand share = body.inverse_of(row, 1);
        const Operand slope = body.op("mul", {body.op("mul", {body.op("mul", {dot, share}), rstd}), rstd});  // rstd^2 may overflow
        rest = body.op("sub", {body.op("sub", {gradient, body.op("mul", {summed, share})}), body.op("mul", {centred, slope})});
      }
      body.result(0, body.op("mul", {rest, scale}), Extent::Element);
    }
    if (is_wanted(graph, instr, 1)) body.result(1, body.op("mul", {dot, rstd}), Extent::Row);
    if (is_wanted(graph, instr, 2)) body.result(2, summed, Extent::Row);
  };
  return true;
}

// (grad, input, mean, rstd, weight, N, C, HxW, group, mask) -> (input, weight, bias). A row is a group of channels of one image, with one
// segment per channel.
bool group_norm_backward(const Graph& graph, const Instr& instr, Member& member) {
  const auto& args = instr.args;
  const auto& symbols = *graph.symbols;
  const Sizes &image = sizes_of(graph, args[1]), &statistics = sizes_of(graph, args[2]);
  if (image.size() < 3 || image.size() >= kMaxRank || statistics.size() != 2) return false;
  const auto channels = symbols.constant(image[1]), groups = symbols.constant(statistics[1]);
  if (!channels || !groups || *groups == 0) return false;
  const auto per_group = symbols.find_integer(*channels / *groups);
  if (!per_group) return false;
  const Sizes segment(image.begin() + 2, image.end());
  if (std::all_of(segment.begin(), segment.end(), [&](capture::ExprId size) { return symbols.constant(size) == 1; })) return false;
  member.sizes = {image[0], statistics[1], *per_group};
  member.sizes.insert(member.sizes.end(), segment.begin(), segment.end());
  if (hint_of_numel(symbols, member.sizes) == 0) return false;
  member.segmented_norm = {.numel = hint_of_numel(symbols, member.sizes),
                           .segment = hint_of_numel(symbols, segment),
                           .type = graph.values[args[1].values[0].index].dtype,
                           .has_weight = is_tensor(args[4])};
  member.row_dims = last_dims(member.sizes.size(), segment.size() + 1);
  member.channel_dims = 0b110;
  for (const size_t i : {0, 1}) member.operands.push_back({args[i].values[0], 0, 1});
  for (const size_t i : {2, 3}) member.operands.push_back({args[i].values[0], 0});
  if (is_tensor(args[4])) member.operands.push_back({args[4].values[0], 1, 1});
  Sizes row = segment;
  row.push_back(*per_group);
  member.build = [&graph, &instr, &args, row](BodyBuilder& body) {
    const Operand gradient = body.tensor(args[0]), rstd = body.tensor(args[3]);
    const Operand centred = body.op("sub", {body.tensor(args[1]), body.tensor(args[2])});
    const auto scaled = [&](Operand operand) { return is_tensor(args[4]) ? body.op("mul", {operand, body.tensor(args[4])}) : operand; };
    const Operand sum = is_wanted(graph, instr, 0) || is_wanted(graph, instr, 2) ? body.reduce(kSumOfSegment, gradient) : Operand{};
    const Operand dot = is_wanted(graph, instr, 0) || is_wanted(graph, instr, 1)
                            ? body.reduce(kSumOfSegment, body.op("mul", {gradient, centred}))
                            : Operand{};
    if (is_wanted(graph, instr, 0)) {
      const Operand share = body.op("mul", {rstd, body.inverse_of(row, 1)});
      const Operand mean = body.op("mul", {body.reduce(kSumOfSegments, scaled(sum)), share});
      const Operand dots = body.op("mul", {body.reduce(kSumOfSegments, scaled(dot)), share});
      const Operand slope = body.op("mul", {body.op("mul", {dots, rstd}), rstd});  // rstd^2 may overflow
      const Operand rest = body.op("sub", {body.op("mul", {gradient, scaled(rstd)}), mean});
      body.result(0, body.op("sub", {rest, body.op("mul", {centred, slope})}), Extent::Element);
    }
    if (is_wanted(graph, instr, 1)) body.result(1, body.op("mul", {dot, rstd}), Extent::Channels);
    if (is_wanted(graph, instr, 2)) body.result(2, sum, Extent::Channels);
  };
  return true;
}

// (grad, output, dim, input_dtype)
RowOp softmax_backward(bool log) {
  return [log](const Graph& graph, const Instr& instr, Member& member) {
    const auto& args = instr.args;
    if (args[2].kind != Arg::Kind::Constant) return false;
    member.sizes = sizes_of(graph, args[1]);
    const auto rank = static_cast<int64_t>(member.sizes.size());
    const int64_t dim = args[2].constant.toInt() < 0 ? args[2].constant.toInt() + rank : args[2].constant.toInt();
    if (rank == 0 || dim >= rank) return false;
    member.row_dims = 1u << dim;
    for (const size_t i : {0, 1}) member.operands.push_back({args[i].values[0], 0});
    member.build = [&args, log](BodyBuilder& body) {
      const Operand gradient = body.tensor(args[0]), output = body.tensor(args[1]);
      if (log) {
        const Operand sum = body.reduce(kSumOfRow, gradient);
        body.result(0, body.op("sub", {gradient, body.op("mul", {body.op("exp", {output}), sum})}), Extent::Element);
      } else {
        const Operand sum = body.reduce(kSumOfRow, body.op("mul", {gradient, output}));
        body.result(0, body.op("mul", {body.op("sub", {gradient, sum}), output}), Extent::Element);
      }
    };
    return true;
  };
}

// (grad, self, target, weight, reduction, ignore_index, total_weight)
bool nll_loss_backward(const Graph& graph, const Instr& instr, Member& member) {
  const auto& args = instr.args;
  member.sizes = sizes_of(graph, args[1]);
  if (member.sizes.size() != 2 || args[4].kind != Arg::Kind::Constant || args[5].kind != Arg::Kind::Constant) return false;
  if (args[5].constant.toInt() >= 0) return false;  // ignore_index may be a real class, which is not supported
  const bool is_mean = args[4].constant.toInt() == 1;
  member.row_dims = 2;
  member.operands.push_back({args[0].values[0], 0});
  member.operands.push_back({args[2].values[0], 0});
  if (is_tensor(args[3])) member.operands.push_back({args[3].values[0], 1});
  if (is_mean) member.operands.push_back({args[6].values[0], 0});
  member.build = [&args, is_mean](BodyBuilder& body) {
    Operand share = body.op("neg", {body.tensor(args[0])});
    if (is_tensor(args[3])) share = body.op("mul", {share, body.tensor(args[3])});
    if (is_mean) share = body.op("div", {share, body.tensor(args[6])});
    body.result(0, body.one_hot(body.tensor(args[2]), share), Extent::Element);
  };
  return true;
}

// Whether `index` has one index for each row of `sizes` along the dim, and rows are short: a kernel reads all columns.
bool picks_from_short_rows(const Graph& graph, const Sizes& sizes, size_t dim, ValueId index) {
  const capture::Value& indices = graph.values[index.index];
  if (indices.dtype != at::kLong || indices.sizes.size() != sizes.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i == dim ? graph.symbols->constant(indices.sizes[i]) != 1 : indices.sizes[i] != sizes[i]) return false;
  }
  return graph.symbols->hint(sizes[dim]) < kShortRow;
}

// (self, dim, index, sparse_grad)
bool gather(const Graph& graph, const Instr& instr, Member& member) {
  const auto& args = instr.args;
  member.sizes = sizes_of(graph, args[0]);
  const auto dim = only_dim(args[1], member.sizes.size());
  if (!dim || !picks_from_short_rows(graph, member.sizes, *dim, args[2].values[0]) || !has_elements(graph, member)) return false;
  member.row_dims = 1u << *dim;
  for (const size_t i : {0, 2}) member.operands.push_back({args[i].values[0], 0});
  member.checks_indices = true;
  member.build = [&args](BodyBuilder& body) {
    // The largest of the row, and not a sum: that would lose the sign of -0.
    const Operand index = body.tensor(args[2]), self = body.tensor(args[0]);
    const Operand picked = body.checked_one_hot(index, self, body.number(-std::numeric_limits<double>::infinity()));
    body.result(0, body.reduce(kMaxOfRow, picked), Extent::Row);
  };
  return true;
}

}  // namespace

// (self, dim, index, src)
bool scatter_add(const Graph& graph, const Instr& instr, ValueId self, Member& member) {
  const auto& args = instr.args;
  member.sizes = graph.values[self.index].sizes;
  const auto dim = only_dim(args[1], member.sizes.size());
  if (!dim || !is_tensor(args[2]) || !is_tensor(args[3])) return false;
  const ValueId index = args[2].values[0], source = args[3].values[0];
  if (sizes_of(graph, args[3]) != sizes_of(graph, args[2]) || !picks_from_short_rows(graph, member.sizes, *dim, index)) return false;
  if (graph.values[source.index].dtype != graph.values[self.index].dtype || !has_elements(graph, member)) return false;
  member.row_dims = 1u << *dim;
  for (const ValueId value : {self, index, source}) member.operands.push_back({value, 0});
  member.checks_indices = true;
  member.build = [self, index, source](BodyBuilder& body) {
    // x + -0 is x, also if that is -0.
    const Operand column = body.tensor(index), added = body.checked_one_hot(column, body.tensor(source), body.number(-0.0));
    body.result(0, body.op("add", {body.tensor(self), added}), Extent::Element);
  };
  return true;
}

const RowOp* find_row_op(const c10::OperatorHandle& op) {
  using Table = std::unordered_map<std::string, RowOp>;
  static constinit base::MadeOnce<const Table> made;
  const Table& table = made.by([] {
    return Table{
        {"aten::native_layer_norm", layer_norm},
        {"aten::_softmax", softmax(false)},
        {"aten::_log_softmax", softmax(true)},
        {"aten::logsumexp", logsumexp},
        {"aten::mse_loss", mse_loss},
        {"aten::native_layer_norm_backward", layer_norm_backward},
        {"aten::native_batch_norm_backward", batch_norm_backward},
        {"aten::native_group_norm_backward", group_norm_backward},
        {"aten::_softmax_backward_data", softmax_backward(false)},
        {"aten::_log_softmax_backward_data", softmax_backward(true)},
        {"aten::nll_loss_backward", nll_loss_backward},
        {"aten::gather", gather},
        {"aten::scatter_add",
         [](const Graph& graph, const Instr& instr, Member& member) { return scatter_add(graph, instr, instr.args[0].values[0], member); }},
    };
  });
  const auto& name = op.operator_name();
  if (!name.overload_name.empty()) return nullptr;
  const auto found = table.find(name.name);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace hindcast::codegen
