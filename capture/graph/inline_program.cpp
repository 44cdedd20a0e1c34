#include "capture/graph/inline_program.h"

#include "base/check.h"
#include "capture/graph/known_op.h"

#include <algorithm>
#include <utility>

namespace hindcast::capture {
namespace {

// Translates expressions of one table into another.
class Translation {
 public:
  Translation(const SymbolTable& from, SymbolTable& to, std::span<const ExprId> integers)
      : from_(from), to_(to), integers_(integers), known_(from.size()) {}

  ExprId operator()(ExprId id) {
    auto& known = known_[id.index];
    if (!known) known = translate(from_.expr(id));
    return *known;
  }

 private:
  ExprId translate(const Expr& expr) {
    if (expr.kind == ExprKind::IntSymbol) return integers_[static_cast<size_t>(expr.payload.i)];
    if (expr.kind == ExprKind::FloatSymbol) HC_UNSUPPORTED("a program with a float symbol");
    switch (type_of(expr.kind)) {
      case ExprType::Int:
        return translate_integer(expr);
      case ExprType::Float:
        return translate_real(expr);
      case ExprType::Bool:
        return translate_truth(expr);
    }
    return {};
  }

  ExprId translate_integer(const Expr& expr) {
    if (expr.kind == ExprKind::IntConst) return to_.integer(expr.payload.i);
    const ExprId a = (*this)(expr.a);
    if (expr.kind == ExprKind::Floor) return to_.floor(a);
    if (expr.kind == ExprKind::Ceil) return to_.ceil(a);
    const ExprId b = (*this)(expr.b);
    switch (expr.kind) {
      case ExprKind::Add:
        return to_.add(a, b);
      case ExprKind::Mul:
        return to_.mul(a, b);
      case ExprKind::Div:
        return to_.div(a, b);
      case ExprKind::Mod:
        return to_.mod(a, b);
      case ExprKind::Min:
        return to_.min(a, b);
      default:
        return to_.max(a, b);
    }
  }

  ExprId translate_real(const Expr& expr) {
    if (expr.kind == ExprKind::FloatConst) return to_.real(expr.payload.f);
    const ExprId a = (*this)(expr.a);
    if (expr.kind == ExprKind::FromInt) return to_.to_real(a);
    if (expr.kind == ExprKind::FNeg) return to_.real_neg(a);
    return to_.real_op(expr.kind, a, (*this)(expr.b));
  }

  ExprId translate_truth(const Expr& expr) {
    const ExprId a = (*this)(expr.a);
    if (expr.kind == ExprKind::Not) return to_.negate(a);
    const ExprId b = (*this)(expr.b);
    switch (expr.kind) {
      case ExprKind::Equal:
        return to_.compare(Cmp::Equal, a, b);
      case ExprKind::Less:
        return to_.compare(Cmp::Less, a, b);
      case ExprKind::LessEqual:
        return to_.compare(Cmp::LessEqual, a, b);
      case ExprKind::And:
        return to_.both(a, b);
      default:
        return to_.either(a, b);
    }
  }

  const SymbolTable& from_;
  SymbolTable& to_;
  const std::span<const ExprId> integers_;
  std::vector<std::optional<ExprId>> known_;
};

class Inliner {
 public:
  Inliner(Graph& graph, const InlineRequest& request)
      : graph_(graph),
        request_(request),
        program_(request.program),
        translated_(*program_.symbols, *graph.symbols, request.integers),
        values_(program_.values.size()),
        memory_(program_.values.size()) {
    for (uint32_t i = 0; i < memory_.size(); ++i) memory_[i] = i;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (program_.inputs[i].defined()) values_[program_.inputs[i].index] = request.inputs[i];
    }
    for (size_t i = 0; i < request.saved; ++i) {
      if (program_.inputs[i].defined() && request.inputs[i].defined()) take_sizes(program_.inputs[i], request.inputs[i]);
    }
  }

  std::vector<ValueId> run() {
    for (const Relation& relation : program_.symbols->relations()) {
      graph_.symbols->decide(relation.cmp, translated_(relation.lhs), translated_(relation.rhs));
    }
    for (const Instr& instr : program_.instrs) add(instr);
    std::vector<ValueId> outputs;
    for (size_t i = 0; i < program_.outputs.size(); ++i)
      outputs.push_back(shares_kept_memory(i) ? copy_of(value(program_.outputs[i])) : value(program_.outputs[i]));
    return outputs;
  }

 private:
  // Otherwise a width that is 64 in the program and a symbol outside would keep apart ops that belong in one kernel.
  void take_sizes(ValueId in_program, ValueId there) {
    std::vector<ExprId> sizes;
    for (const ExprId size : program_.values[in_program.index].sizes) sizes.push_back(translated_(size));
    if (sizes.size() == graph_.values[there.index].sizes.size()) graph_.values.edit(there.index).sizes = std::move(sizes);
  }

  bool is_kept(size_t output) const { return output < request_.is_kept.size() && request_.is_kept[output]; }

  // With an earlier output that is another view of it. A leaf copies a tensor that another output is too.
  bool shares_kept_memory(size_t output) const {
    const ValueId id = program_.outputs[output];
    for (size_t i = 0; id.defined() && i < output; ++i) {
      const ValueId other = program_.outputs[i];
      if (!other.defined() || other == id || memory_[other.index] != memory_[id.index]) continue;
      if (is_kept(i) || is_kept(output)) return true;
    }
    return false;
  }

  ValueId copy_of(ValueId id) {
    static constinit KnownOp clone("aten::clone");
    Value copy = graph_.values[id.index];
    copy.is_view = false;
    graph_.values.push_back(std::move(copy));
    Instr& instr = graph_.instrs.emplace_back();
    instr.op = clone.get();
    instr.origin = request_.origin;
    instr.args.resize(2);
    instr.args[0] = {Arg::Kind::Value, {}, {id}, {}};
    instr.outputs = {ValueId{static_cast<uint32_t>(graph_.values.size() - 1)}};
    return instr.outputs[0];
  }

  void note_memory(const Instr& instr) {
    if (instr.kind != InstrKind::Op) return;
    const auto viewed = std::find_if(instr.args.begin(), instr.args.end(), [](const Arg& arg) { return arg.kind == Arg::Kind::Value; });
    for (const ValueId made : instr.outputs) {
      if (made.defined() && program_.values[made.index].is_view && viewed != instr.args.end() && viewed->values[0].defined())
        memory_[made.index] = memory_[viewed->values[0].index];
    }
  }

  ValueId value(ValueId id) const { return id.defined() ? values_[id.index] : id; }

  std::vector<Arg> args(const std::vector<Arg>& list) {
    std::vector<Arg> result = list;
    for (Arg& arg : result) {
      for (ValueId& id : arg.values) id = value(id);
      for (ExprId& id : arg.exprs) id = translated_(id);
    }
    return result;
  }

  void add(const Instr& instr) {
    note_memory(instr);
    Instr copy = instr;
    copy.origin = request_.origin;
    copy.args = args(instr.args);
    for (ViewStep& view : copy.views) view.args = args(view.args);
    for (ValueId& id : copy.inputs) id = value(id);
    copy.base = value(copy.base);
    for (ValueId& id : copy.outputs) {
      if (!id.defined()) continue;
      Value made = program_.values[id.index];
      for (ExprId& size : made.sizes) size = translated_(size);
      graph_.values.push_back(std::move(made));
      const ValueId now{static_cast<uint32_t>(graph_.values.size() - 1)};
      values_[id.index] = now;
      id = now;
    }
    graph_.instrs.push_back(std::move(copy));
  }

  Graph& graph_;
  const InlineRequest& request_;
  const Graph& program_;
  Translation translated_;
  std::vector<ValueId> values_;
  std::vector<uint32_t> memory_;  // by value of the program: the value that has the memory
};

}  // namespace

std::vector<ValueId> inline_program(Graph& graph, const InlineRequest& request) { return Inliner(graph, request).run(); }

}  // namespace hindcast::capture
