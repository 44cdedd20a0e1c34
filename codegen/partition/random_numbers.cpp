#include "codegen/partition/random_numbers.h"

#include "codegen/fuse/random_ops.h"
#include "codegen/fuse/views.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace hindcast::codegen {

using capture::Arg;
using capture::ExprId;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Joint;
using capture::Value;
using capture::ValueId;

namespace {

constexpr uint32_t kNone = 0xffffffffu;

bool is_named(const Instr& instr, std::string_view name, std::string_view overload) {
  return instr.op && instr.op->operator_name().name == name && instr.op->operator_name().overload_name == overload;
}

// Of all of a tensor.
bool writes_all(const Instr& instr) { return instr.kind == InstrKind::Mutate && instr.views.empty() && instr.target_arg == 0; }

std::optional<double> number_of(const Arg& arg) {
  if (arg.kind != Arg::Kind::Constant || !(arg.constant.isDouble() || arg.constant.isInt())) return std::nullopt;
  return arg.constant.toScalar().toDouble();
}

Arg constant(c10::IValue value) { return {.constant = std::move(value)}; }
Arg tensor(ValueId value) { return {.kind = Arg::Kind::Value, .values = {value}}; }

class Rewriter {
 public:
  explicit Rewriter(const Joint& joint) : joint_(joint), graph_(std::make_shared<Graph>(*joint.graph)), users_(graph_->values.size()) {
    for (uint32_t i = 0; i < graph_->instrs.size(); ++i) {
      capture::for_each_use(graph_->instrs[i], [&](ValueId value) { note(value, i); });
    }
    for (const ValueId value : graph_->outputs) note(value, kNone);
  }

  Joint run() {
    for (uint32_t i = 0; i < joint_.forward_end; ++i) {
      if (is_bernoulli(graph_->instrs[i])) replace(i);
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
  void note(ValueId value, uint32_t user) {
    if (!value.defined()) return;
    auto& users = users_[value.index];
    if (users.empty() || users.back() != user) users.push_back(user);
  }

  // (self, p, generator); what was there before is not read.
  bool is_bernoulli(const Instr& instr) const {
    const bool in_place = writes_all(instr) && is_named(instr, "aten::bernoulli_", "float");
    if (!in_place && !(instr.kind == InstrKind::Op && is_named(instr, "aten::bernoulli", "p"))) return false;
    if (!number_of(instr.args[1]) || instr.args[2].kind != Arg::Kind::Constant || !instr.args[2].constant.isNone()) return false;
    const Value& result = graph_->values[instr.outputs[0].index];
    const bool is_float =
        result.dtype == at::kFloat || result.dtype == at::kDouble || result.dtype == at::kBFloat16 || result.dtype == at::kHalf;
    return result.defined && result.device.is_cpu() && is_float && result.strides.size() == result.sizes.size() &&
           is_contiguous(*graph_, result);
  }

  // What alone reads it, where that divides it by a number.
  uint32_t divisor_of(ValueId value) const {
    const auto& users = users_[value.index];
    if (users.size() != 1 || users[0] == kNone || users[0] >= joint_.forward_end) return kNone;
    const Instr& user = graph_->instrs[users[0]];
    if (!writes_all(user) || user.base != value || !is_named(user, "aten::div_", "Scalar")) return kNone;
    const auto number = number_of(user.args[1]);
    return number && *number != 0 ? users[0] : kNone;
  }

  void replace(uint32_t i) {
    const double p = *number_of(graph_->instrs[i].args[1]);
    double value = 1;
    if (const uint32_t divisor = divisor_of(graph_->instrs[i].outputs[0]); divisor != kNone) {
      value /= *number_of(graph_->instrs[divisor].args[1]);
      removed_.insert(i);
      i = divisor;
    }
    const Instr replaced = graph_->instrs[i];
    const ValueId result = replaced.outputs[0];
    const auto [rows, columns] = counters_of(graph_->values[result.index].sizes);
    const ValueId seed = add_to_start(random_ops().seed, {}, {}, at::kLong);
    Instr& instr = graph_->instrs.edit(i);
    instr = {.origin = replaced.origin, .op = random_ops().bernoulli, .outputs = {result}};
    instr.args = {tensor(seed), tensor(rows),    tensor(columns),
                  constant(p),  constant(value), constant(static_cast<int64_t>(graph_->values[result.index].dtype))};
  }

  // The innermost dims that make a loop count the columns, the others the rows.
  std::pair<ValueId, ValueId> counters_of(const std::vector<ExprId>& sizes) {
    constexpr int64_t kColumns = 64;
    size_t first_column = sizes.size();
    for (int64_t columns = 1; first_column > 0 && columns < kColumns;) columns *= graph_->symbols->hint(sizes[--first_column]);
    const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(first_column);
    std::vector<ExprId> rows(sizes.begin(), middle);
    rows.resize(sizes.size(), graph_->symbols->integer(1));
    return {counters(rows), counters({middle, sizes.end()})};
  }

  ValueId counters(const std::vector<ExprId>& sizes) {
    std::vector<uint32_t> key;
    for (const ExprId size : sizes) key.push_back(size.index);
    const auto [known, is_new] = counters_.try_emplace(key);
    if (is_new) {
      Arg size{.kind = Arg::Kind::IntList};
      size.exprs.assign(sizes.begin(), sizes.end());
      known->second = add_to_start(random_ops().counters, {size}, sizes, at::kInt);
    }
    return known->second;
  }

  ValueId add_to_start(const c10::OperatorHandle& op, std::vector<Arg> args, const std::vector<ExprId>& sizes, at::ScalarType type) {
    std::vector<int64_t> strides(sizes.size());
    int64_t stride = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      strides[dim] = stride;
      stride *= std::max<int64_t>(1, graph_->symbols->hint(sizes[dim]));
    }
    const ValueId value{static_cast<uint32_t>(graph_->values.size())};
    graph_->values.push_back({.dtype = type, .sizes = sizes, .strides = std::move(strides)});
    start_.push_back({.op = op, .args = std::move(args), .outputs = {value}});
    return value;
  }

  const Joint& joint_;
  std::shared_ptr<Graph> graph_;
  std::vector<std::vector<uint32_t>> users_;  // by value: instrs, kNone for who called the program
  std::set<uint32_t> removed_;
  std::vector<Instr> start_;                           // new ones, before all others
  std::map<std::vector<uint32_t>, ValueId> counters_;  // by sizes
};

}  // namespace

Joint draw_in_kernels(const Joint& joint) { return Rewriter(joint).run(); }

}  // namespace hindcast::codegen
