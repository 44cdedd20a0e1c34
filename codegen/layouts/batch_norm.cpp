#include "codegen/layouts/batch_norm.h"

#include "capture/graph/args.h"
#include "codegen/fuse/body.h"
#include "codegen/fuse/shapes.h"

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace hindcast::codegen {

using capture::Arg;
using capture::constant;
using capture::ExprId;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::is_bool;
using capture::is_tensor;
using capture::is_true;
using capture::tensor;
using capture::Value;
using capture::ValueId;

namespace {

constexpr std::string_view kMovesStatistics = "aten::_native_batch_norm_legit_functional", kBackward = "aten::native_batch_norm_backward";

bool is_number(const Arg& arg) { return arg.kind == Arg::Kind::Constant && arg.constant.isDouble(); }
bool is_named(const Instr& instr, std::string_view name) { return instr.op && instr.op->operator_name().name == name; }

// Adds the ops that replace one batch norm.
class Ops {
 public:
  static constexpr size_t kNone = ~size_t{0};

  Ops(Graph& graph, const Instr& instr, ValueId image) : graph_(graph), instr_(instr), image_(graph.values[image.index]) {
    image_.is_view = false;
    std::vector<int64_t> sizes;
    for (const ExprId size : image_.sizes) sizes.push_back(graph.symbols->hint(size));
    image_.strides = c10::get_channels_last_strides_2d(sizes);
    channels_ = image_;
    channels_.sizes = {image_.sizes[1]};
    channels_.strides = {1};
  }

  bool is_wanted(size_t output) const {
    return output < instr_.outputs.size() && instr_.outputs[output].defined() && graph_.values[instr_.outputs[output].index].defined;
  }

  /// An op with one result per element of the images. `output`: the result of the batch norm that it replaces.
  ValueId of_images(const char* name, const char* overload, std::vector<Arg> args, size_t output = kNone) {
    return add(name, overload, std::move(args), image_, output);
  }
  /// An op with one result per channel.
  ValueId of_channels(const char* name, const char* overload, std::vector<Arg> args, size_t output = kNone) {
    return add(name, overload, std::move(args), channels_, output);
  }
  ValueId sum(ValueId images, size_t output = kNone) {
    const c10::List<int64_t> all_but_channels({0, 2, 3});
    return of_channels("aten::sum", "dim_IntList", {tensor(images), constant(all_but_channels), constant(false), constant({})}, output);
  }
  ValueId difference(ValueId a, ValueId b) { return of_images("aten::sub", "Tensor", {tensor(a), tensor(b), constant(1)}); }
  ValueId product(ValueId a, ValueId b, size_t output = kNone) { return of_images("aten::mul", "Tensor", {tensor(a), tensor(b)}, output); }
  /// A view of one number per channel that broadcasts to images.
  ValueId spread(ValueId channels) {
    Value spread = graph_.values[channels.index];
    const ExprId one = graph_.symbols->integer(1), size = spread.sizes[0];
    const int64_t step = graph_.symbols->hint(size);
    spread.sizes = {one, size, one, one};
    spread.strides = {step, 1, 1, 1};
    spread.is_view = true;
    Arg sizes{.kind = Arg::Kind::IntList};
    sizes.exprs.assign(spread.sizes.begin(), spread.sizes.end());
    return add("aten::view", "", {tensor(channels), sizes}, spread, kNone);
  }

  /// The number of elements per channel, minus `missing`.
  Arg count(int64_t missing = 0) {
    capture::SymbolTable& symbols = *graph_.symbols;
    const auto& sizes = image_.sizes;
    const ExprId all = symbols.mul(symbols.mul(sizes[0], sizes[2]), sizes[3]);
    const ExprId count = symbols.sub(all, symbols.integer(missing));
    if (const auto number = symbols.constant(count)) return constant(static_cast<double>(*number));
    return {.kind = Arg::Kind::Int, .exprs = {count}};
  }

 private:
  ValueId add(const char* name, const char* overload, std::vector<Arg> args, const Value& like, size_t output) {
    ValueId result = output != kNone && is_wanted(output) ? instr_.outputs[output] : ValueId();
    if (!result.defined()) {
      result = {static_cast<uint32_t>(graph_.values.size())};
      graph_.values.emplace_back() = like;
    }
    Instr& instr = graph_.instrs.emplace_back();
    instr.op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    instr.origin = instr_.origin;
    instr.args = std::move(args);
    instr.outputs = {result};
    return result;
  }

  Graph& graph_;
  const Instr& instr_;
  Value image_, channels_;
};

// (input, weight, bias, running_mean, running_var, training, momentum, eps) -> (output, mean, rstd[, running_mean, running_var])
void add_forward(Graph& graph, const Instr& instr) {
  const auto& args = instr.args;
  const ValueId input = args[0].values[0];
  Ops ops(graph, instr, input);
  // A mean much larger than the standard deviation has rounding errors of some of its units in the last place. The mean of the differences
  // from it is a correction: `shift`.
  const ValueId near_mean = ops.of_channels("aten::div", "Scalar", {tensor(ops.sum(input)), ops.count()});
  const ValueId nearly_centred = ops.difference(input, ops.spread(near_mean));
  const ValueId distance = ops.sum(nearly_centred), near_squares = ops.sum(ops.product(nearly_centred, nearly_centred));
  const ValueId shift = ops.of_channels("aten::div", "Scalar", {tensor(distance), ops.count()});
  const ValueId mean = ops.of_channels("aten::add", "Tensor", {tensor(near_mean), tensor(shift), constant(1)}, 1);
  const ValueId of_shift = ops.of_channels("aten::mul", "Tensor", {tensor(distance), tensor(shift)});
  const ValueId difference = ops.of_channels("aten::sub", "Tensor", {tensor(near_squares), tensor(of_shift), constant(1)});
  const ValueId squares = ops.of_channels("aten::clamp_min", "", {tensor(difference), constant(0)});
  const ValueId variance = ops.of_channels("aten::div", "Scalar", {tensor(squares), ops.count()});
  const ValueId shifted = ops.of_channels("aten::add", "Scalar", {tensor(variance), args[7], constant(1)});
  const ValueId rstd = ops.of_channels("aten::rsqrt", "", {tensor(shifted)}, 2);
  if (is_named(instr, kMovesStatistics)) {
    const double momentum = args[6].constant.toDouble();
    const auto move = [&](const Arg& running, ValueId to, size_t output) {
      const ValueId rest = ops.of_channels("aten::mul", "Scalar", {running, constant(1 - momentum)});
      ops.of_channels("aten::add", "Tensor", {tensor(rest), tensor(to), constant(momentum)}, output);
    };
    if (ops.is_wanted(3)) move(args[3], mean, 3);
    if (ops.is_wanted(4)) move(args[4], ops.of_channels("aten::div", "Scalar", {tensor(squares), ops.count(1)}), 4);
  }
  const bool has_bias = is_tensor(args[2]);
  const ValueId scale = is_tensor(args[1]) ? ops.of_channels("aten::mul", "Tensor", {tensor(rstd), args[1]}) : rstd;
  const ValueId scaled = ops.product(ops.difference(input, ops.spread(mean)), ops.spread(scale), has_bias ? Ops::kNone : 0);
  if (has_bias) ops.of_images("aten::add", "Tensor", {tensor(scaled), tensor(ops.spread(args[2].values[0])), constant(1)}, 0);
}

// (grad, input, weight, running_mean, running_var, mean, rstd, train, eps, mask) -> (input, weight, bias)
void add_backward(Graph& graph, const Instr& instr) {
  const auto& args = instr.args;
  const bool train = is_true(args[7]);
  const ValueId gradient = args[0].values[0], input = args[1].values[0], mean = args[train ? 5 : 3].values[0];
  Ops ops(graph, instr, input);
  ValueId rstd = args[train ? 6 : 4].values[0];
  if (!train) {
    const ValueId shifted = ops.of_channels("aten::add", "Scalar", {tensor(rstd), args[8], constant(1)});
    rstd = ops.of_channels("aten::rsqrt", "", {tensor(shifted)});
  }
  const bool needs_sums = train && ops.is_wanted(0);
  ValueId sum, dot;
  if (needs_sums || ops.is_wanted(1)) dot = ops.sum(ops.product(gradient, ops.difference(input, ops.spread(mean))));
  if (needs_sums || ops.is_wanted(2)) sum = ops.sum(gradient, 2);
  if (ops.is_wanted(1)) ops.of_channels("aten::mul", "Tensor", {tensor(dot), tensor(rstd)}, 1);
  if (!ops.is_wanted(0)) return;
  ValueId rest = gradient;
  if (train) {
    const ValueId share = ops.of_channels("aten::div", "Scalar", {tensor(sum), ops.count()});
    const ValueId of_dot = ops.of_channels("aten::div", "Scalar", {tensor(dot), ops.count()});
    const ValueId scaled = ops.of_channels("aten::mul", "Tensor", {tensor(of_dot), tensor(rstd)});
    const ValueId slope = ops.of_channels("aten::mul", "Tensor", {tensor(scaled), tensor(rstd)});
    // Recomputes the difference above, negated: the kernel of the sums would write a shared value to memory for this one.
    const ValueId reversed = ops.difference(ops.spread(mean), input);
    const ValueId level = ops.difference(gradient, ops.spread(share));
    rest = ops.of_images("aten::add", "Tensor", {tensor(level), tensor(ops.product(reversed, ops.spread(slope))), constant(1)});
  }
  const ValueId scale = is_tensor(args[2]) ? ops.of_channels("aten::mul", "Tensor", {tensor(rstd), args[2]}) : rstd;
  ops.product(rest, ops.spread(scale), 0);
}

}  // namespace

bool sums_over_images(const Instr& instr) {
  if (instr.kind == InstrKind::Event || !instr.op) return false;
  const std::string& name = instr.op->operator_name().name;
  if (name.find("batch_norm") == name.npos) return false;
  return name.ends_with("_backward") || std::any_of(instr.args.begin(), instr.args.end(), is_true);  // `training`, its only flag
}

bool has_ops_for_sums(const Graph& graph, const Instr& instr, const CostModel& costs) {
  if (instr.kind != InstrKind::Op) return false;
  const auto& args = instr.args;
  const bool is_backward = is_named(instr, kBackward);
  const Value& image = graph.values[args[is_backward ? 1 : 0].values[0].index];
  const int64_t channels = graph.symbols->hint(image.sizes[1]);
  // With one image or one row, strides do not determine the layout, so that its pointwise expressions could not be fused.
  for (const size_t dim : {0, 2, 3}) {
    if (graph.symbols->hint(image.sizes[dim]) == 1) return false;
  }
  const int64_t numel = hint_of_numel(*graph.symbols, image.sizes);
  if (channels < kShortRow && !costs.is_call_bound(numel)) return false;
  if (!costs.is_worth_it(RowShape{.numel = numel, .row = channels, .neighbours = channels})) return false;
  if (is_backward) {
    const bool train = is_true(args[7]);
    return is_bool(args[7]) && is_number(args[8]) && is_tensor(args[train ? 5 : 3]) && is_tensor(args[train ? 6 : 4]);
  }
  const bool keeps_statistics = is_named(instr, "aten::native_batch_norm") && !is_tensor(args[3]);
  return (keeps_statistics || is_named(instr, kMovesStatistics)) && is_number(args[6]) && is_number(args[7]);
}

void add_batch_norm(Graph& graph, const Instr& instr) {
  is_named(instr, kBackward) ? add_backward(graph, instr) : add_forward(graph, instr);
}

}  // namespace hindcast::codegen
