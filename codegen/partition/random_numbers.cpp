#include "codegen/partition/random_numbers.h"

#include "capture/graph/args.h"
#include "capture/graph/value_uses.h"
#include "codegen/fuse/body.h"
#include "codegen/fuse/random_ops.h"
#include "codegen/fuse/views.h"
#include "base/index.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace hindcast::codegen {

using capture::Arg;
using capture::constant;
using capture::ExprId;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Joint;
using capture::tensor;
using capture::Value;
using capture::ValueId;

namespace {

bool is_named(const Instr& instr, std::string_view name, std::string_view overload) {
  return instr.op && instr.op->operator_name().name == name && instr.op->operator_name().overload_name == overload;
}

// Whether the instr writes a whole tensor.
bool writes_all(const Instr& instr) { return instr.kind == InstrKind::Mutate && instr.views.empty() && instr.target_arg == 0; }

std::optional<double> number_of(const Arg& arg) {
  if (arg.kind != Arg::Kind::Constant || !(arg.constant.isDouble() || arg.constant.isInt())) return std::nullopt;
  return arg.constant.toScalar().toDouble();
}

class Rewriter {
 public:
  explicit Rewriter(const Joint& joint) : joint_(joint), graph_(std::make_shared<Graph>(*joint.graph)), uses_(*joint.graph) {}

  Joint run() {
    for (uint32_t i = 0; i < joint_.forward_end; ++i) {
      if (is_bernoulli(graph_->instrs[i])) replace(i);
      if (is_dropout(graph_->instrs[i])) replace_dropout(i);
    }
    Joint joint = joint_;
    if (start_.empty()) return joint;
    joint.forward_end += static_cast<uint32_t>(start_.size()) - static_cast<uint32_t>(removed_.size());
    graph_->instrs.erase_all(removed_);
    graph_->instrs.insert_front(std::move(start_));
    graph_->verify();
    joint.graph = std::move(graph_);
    return joint;
  }

 private:
  // (self, p, generator); what was there before is not read.
  bool is_bernoulli(const Instr& instr) const {
    const bool in_place = writes_all(instr) && is_named(instr, "aten::bernoulli_", "float");
    if (!in_place && !(instr.kind == InstrKind::Op && is_named(instr, "aten::bernoulli", "p"))) return false;
    if (!number_of(instr.args[1]) || instr.args[2].kind != Arg::Kind::Constant || !instr.args[2].constant.isNone()) return false;
    return is_drawn_in_place(graph_->values[instr.outputs[0].index]);
  }

  bool is_drawn_in_place(const Value& result) const {
    return result.defined && is_float(result.dtype) && result.strides.size() == result.sizes.size() && is_contiguous(*graph_, result);
  }

  // (input, p, train) -> (output, mask), if only gradients read the mask. ATen uses this op on devices that have a fused dropout kernel.
  bool is_dropout(const Instr& instr) const {
    if (instr.kind != InstrKind::Op || !is_named(instr, "aten::native_dropout", "") || instr.outputs.size() != 2) return false;
    const auto p = number_of(instr.args[1]);
    const Arg& train = instr.args[2];
    const bool trains =
        train.kind == Arg::Kind::Constant && (train.constant.isNone() || (train.constant.isBool() && train.constant.toBool()));
    if (!p || *p <= 0 || *p >= 1 || !trains || !is_drawn_in_place(graph_->values[instr.outputs[0].index])) return false;
    const auto readers = uses_.users_of(instr.outputs[1]);
    return !uses_.is_returned(instr.outputs[1]) && std::all_of(readers.begin(), readers.end(), [&](uint32_t reader) {
      return is_named(graph_->instrs[reader], "aten::native_dropout_backward", "") &&
             graph_->instrs[reader].args[1].values[0] == instr.outputs[1] && number_of(graph_->instrs[reader].args[2]);
    });
  }

  void replace_dropout(uint32_t i) {
    const Instr replaced = graph_->instrs[i];
    const double p = *number_of(replaced.args[1]);
    const Value& result = graph_->values[replaced.outputs[0].index];
    const c10::Device device = result.device;
    const auto [rows, columns] = counters_of(result.sizes, device);
    const ValueId seed = add_seed(device);
    const auto drop = [&](uint32_t at, const Arg& input, ValueId output, double value) {
      const uint32_t origin = graph_->instrs[at].origin;
      Instr& instr = graph_->instrs.edit(at);
      instr = {.origin = origin, .op = random_ops().dropout, .outputs = {output}};
      instr.args = {input, tensor(seed), tensor(rows), tensor(columns), constant(1 - p), constant(value)};
    };
    drop(i, replaced.args[0], replaced.outputs[0], 1 / (1 - p));
    for (const uint32_t reader : uses_.users_of(replaced.outputs[1])) {
      const Instr gradient = graph_->instrs[reader];
      drop(reader, gradient.args[0], gradient.outputs[0], *number_of(gradient.args[2]));
    }
  }

  // The value's only reader, if that divides it by a constant; otherwise kNoIndex.
  uint32_t divisor_of(ValueId value) const {
    const auto users = uses_.users_of(value);
    if (users.size() != 1 || uses_.is_returned(value) || users[0] >= joint_.forward_end) return base::kNoIndex;
    const Instr& user = graph_->instrs[users[0]];
    if (!writes_all(user) || user.base != value || !is_named(user, "aten::div_", "Scalar")) return base::kNoIndex;
    const auto number = number_of(user.args[1]);
    return number && *number != 0 ? users[0] : base::kNoIndex;
  }

  void replace(uint32_t i) {
    const double p = *number_of(graph_->instrs[i].args[1]);
    double value = 1;
    if (const uint32_t divisor = divisor_of(graph_->instrs[i].outputs[0]); divisor != base::kNoIndex) {
      value /= *number_of(graph_->instrs[divisor].args[1]);
      removed_.insert(i);
      i = divisor;
    }
    const Instr replaced = graph_->instrs[i];
    const ValueId result = replaced.outputs[0];
    const c10::Device device = graph_->values[result.index].device;
    const auto [rows, columns] = counters_of(graph_->values[result.index].sizes, device);
    const ValueId seed = add_seed(device);
    Instr& instr = graph_->instrs.edit(i);
    instr = {.origin = replaced.origin, .op = random_ops().bernoulli, .outputs = {result}};
    instr.args = {tensor(seed), tensor(rows),    tensor(columns),
                  constant(p),  constant(value), constant(static_cast<int64_t>(graph_->values[result.index].dtype))};
  }

  // The counters of rows and columns: innermost dims with enough elements for a loop are the columns, the others the rows.
  std::pair<ValueId, ValueId> counters_of(const std::vector<ExprId>& sizes, c10::Device device) {
    constexpr int64_t kColumns = 64;
    size_t first_column = sizes.size();
    for (int64_t columns = 1; first_column > 0 && columns < kColumns;) columns *= graph_->symbols->hint(sizes[--first_column]);
    const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(first_column);
    std::vector<ExprId> rows(sizes.begin(), middle);
    rows.resize(sizes.size(), graph_->symbols->integer(1));
    return {counters(rows, device), counters({middle, sizes.end()}, device)};
  }

  ValueId add_seed(c10::Device device) { return add_to_start(random_ops().seed, {constant(device)}, {}, at::kLong, device); }

  ValueId counters(const std::vector<ExprId>& sizes, c10::Device device) {
    std::vector<uint32_t> key = {static_cast<uint32_t>(device.type()), static_cast<uint32_t>(device.index())};
    for (const ExprId size : sizes) key.push_back(size.index);
    const auto [known, is_new] = counters_.try_emplace(key);
    if (is_new) {
      Arg size{.kind = Arg::Kind::IntList};
      size.exprs.assign(sizes.begin(), sizes.end());
      known->second = add_to_start(random_ops().counters, {size, constant(device)}, sizes, at::kInt, device);
    }
    return known->second;
  }

  ValueId add_to_start(const c10::OperatorHandle& op, std::vector<Arg> args, const std::vector<ExprId>& sizes, at::ScalarType type,
                       c10::Device device) {
    std::vector<int64_t> strides(sizes.size());
    int64_t stride = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      strides[dim] = stride;
      stride *= std::max<int64_t>(1, graph_->symbols->hint(sizes[dim]));
    }
    const ValueId value{static_cast<uint32_t>(graph_->values.size())};
    graph_->values.push_back({.dtype = type, .device = device, .sizes = sizes, .strides = std::move(strides)});
    start_.push_back({.op = op, .args = std::move(args), .outputs = {value}});
    return value;
  }

  const Joint& joint_;
  std::shared_ptr<Graph> graph_;
  const capture::ValueUses uses_;  // as recorded: what this rewriter adds is not in it
  std::set<uint32_t> removed_;
  std::vector<Instr> start_;                           // new instrs at the start of the graph
  std::map<std::vector<uint32_t>, ValueId> counters_;  // by device and sizes
};

}  // namespace

Joint draw_in_kernels(const Joint& joint) { return Rewriter(joint).run(); }

}  // namespace hindcast::codegen
