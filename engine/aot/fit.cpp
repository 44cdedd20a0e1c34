#include "engine/aot/fit.h"

#include "engine/aot/fit_data_sizes.h"
#include "engine/aot/numbers_as_scalars.h"

#include <algorithm>

namespace hindcast::engine {

using capture::Arg;
using capture::ExprId;
using capture::Instr;
using capture::SymbolTable;
using capture::ValueId;

namespace {

// Walks a program and one without backed symbols in parallel. For each pair of numbers or expressions, `expression` returns the expression
// that the first program should have there, or nullopt if the programs differ.
class SideBySide {
 public:
  using Expression = std::function<std::optional<ExprId>(ExprId own, ExprId plain)>;

  SideBySide(TracedProgram& program, const TracedProgram& plain, Expression expression)
      : graph_(const_cast<capture::Graph&>(*program.joint.graph)),  // a copy of the caller's own
        program_(program),
        plain_graph_(*plain.joint.graph),
        plain_(plain),
        expression_(std::move(expression)),
        counterpart_(graph_.values.size()) {}

  bool run() {
    if (!same_frame()) return false;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (!is_made(graph_.inputs[i], plain_graph_.inputs[i])) return false;
    }
    for (size_t i = 0; i < graph_.instrs.size(); ++i) {
      if (!is_same(graph_.instrs.edit(i), plain_graph_.instrs[i])) return false;
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (!is_read(graph_.outputs[i], plain_graph_.outputs[i])) return false;
    }
    for (size_t i = 0; i < program_.returned.size(); ++i) {
      if (!is_same(program_.returned[i], plain_.returned[i])) return false;
    }
    return have_same_data_sizes() && fit_relations();
  }

  /// After run(): the program's relations between unbacked symbols.
  const std::vector<capture::Relation>& relations() const { return relations_; }

 private:
  bool have_same_data_sizes() const {
    const auto &own = graph_.unbacked, &plain = plain_graph_.unbacked;
    return std::equal(own.begin(), own.end(), plain.begin(), plain.end(),
                      [&](const auto& a, const auto& b) { return a.dim == b.dim && is_read(a.value, b.value); });
  }

  // A size may be a number in one of the programs, and the sides of a comparison may then be swapped.
  bool fit_relations() {
    relations_ = relations_of_data_sizes(*graph_.symbols);
    const auto plain = relations_of_data_sizes(*plain_graph_.symbols);
    return std::equal(relations_.begin(), relations_.end(), plain.begin(), plain.end(), [&](auto& own, const auto& other) {
      if (own.cmp != other.cmp || own.outcome != other.outcome) return false;
      auto lhs = expression_(own.lhs, other.lhs), rhs = expression_(own.rhs, other.rhs);
      if ((!lhs || !rhs) && own.cmp == capture::Cmp::Equal) {
        lhs = expression_(own.lhs, other.rhs);
        rhs = expression_(own.rhs, other.lhs);
      }
      if (!lhs || !rhs) return false;
      own.lhs = *lhs;
      own.rhs = *rhs;
      return true;
    });
  }

  bool same_frame() const {
    const capture::Joint &a = program_.joint, &b = plain_.joint;
    return a.primals == b.primals && a.results == b.results && a.forward_end == b.forward_end &&
           graph_.inputs.size() == plain_graph_.inputs.size() && graph_.outputs.size() == plain_graph_.outputs.size() &&
           graph_.instrs.size() == plain_graph_.instrs.size() && program_.returned.size() == plain_.returned.size();
  }

  // Both programs define a value here.
  bool is_made(ValueId own, ValueId plain) {
    if (own.defined() != plain.defined()) return false;
    if (!own.defined()) return true;
    counterpart_[own.index] = plain;
    capture::Value& value = graph_.values.edit(own.index);
    const capture::Value& other = plain_graph_.values[plain.index];
    if (value.dtype != other.dtype || value.defined != other.defined || value.sizes.size() != other.sizes.size()) return false;
    for (size_t d = 0; d < value.sizes.size(); ++d) {
      const auto size = expression_(value.sizes[d], other.sizes[d]);
      if (!size) return false;
      value.sizes[d] = *size;
    }
    return true;
  }
  bool is_read(ValueId own, ValueId plain) const {
    return own.defined() == plain.defined() && (!own.defined() || counterpart_[own.index] == plain);
  }
  template <class List>
  bool are_read(const List& own, const List& plain) const {
    return std::equal(own.begin(), own.end(), plain.begin(), plain.end(), [&](ValueId a, ValueId b) { return is_read(a, b); });
  }

  bool is_same(Instr& own, const Instr& plain) {
    if (own.kind != plain.kind || own.op != plain.op || own.target_arg != plain.target_arg || own.outputs.size() != plain.outputs.size() ||
        own.views.size() != plain.views.size() || !is_read(own.base, plain.base) || !are_read(own.inputs, plain.inputs)) {
      return false;
    }
    if (own.seen != plain.seen || !are_same(own.args, plain.args)) return false;
    for (size_t i = 0; i < own.views.size(); ++i) {
      if (!is_same(own.views[i], plain.views[i])) return false;
    }
    for (size_t i = 0; i < own.outputs.size(); ++i) {
      if (!is_made(own.outputs[i], plain.outputs[i])) return false;
    }
    return true;
  }

  bool is_same(capture::Returned& own, const capture::Returned& plain) {
    if (own.from != plain.from || own.index != plain.index || own.is_itself != plain.is_itself ||
        own.with_autograd != plain.with_autograd || own.same_as != plain.same_as || own.views.size() != plain.views.size()) {
      return false;
    }
    for (size_t i = 0; i < own.views.size(); ++i) {
      if (own.views[i].op != plain.views[i].op || own.views[i].output != plain.views[i].output ||
          !are_same(own.views[i].args, plain.views[i].args, own.views[i].self_arg)) {
        return false;
      }
    }
    return true;
  }

  bool is_same(capture::ViewStep& own, const capture::ViewStep& plain) {
    return own.op == plain.op && own.output == plain.output && own.self_arg == plain.self_arg &&
           are_same(own.args, plain.args, own.self_arg);
  }

  bool are_same(std::vector<Arg>& own, const std::vector<Arg>& plain, uint32_t skipped = 0xffffffffu) {
    if (own.size() != plain.size()) return false;
    for (uint32_t i = 0; i < own.size(); ++i) {
      if (i != skipped && !is_same(own[i], plain[i])) return false;
    }
    return true;
  }

  bool is_same(Arg& own, const Arg& plain) {
    if (!are_read(own.values, plain.values)) return false;
    const auto integers = integers_of(plain, *plain_graph_.symbols), own_integers = integers_of(own, *graph_.symbols);
    if (integers && own_integers) {
      const bool is_list = own.kind == Arg::Kind::IntList || own.constant.isIntList();
      const bool is_plain_list = plain.kind == Arg::Kind::IntList || plain.constant.isIntList();
      return is_list == is_plain_list && set_integers(own, *own_integers, *integers, is_list ? Arg::Kind::IntList : Arg::Kind::Int);
    }
    if (own.kind != plain.kind) return false;
    return own.kind != Arg::Kind::Constant || is_equal(own.constant, plain.constant);
  }

  // Returns nullopt if the argument has no integers.
  static std::optional<std::vector<ExprId>> integers_of(const Arg& arg, SymbolTable& symbols) {
    if (arg.kind == Arg::Kind::Int || arg.kind == Arg::Kind::IntList) return std::vector<ExprId>(arg.exprs.begin(), arg.exprs.end());
    const c10::IValue& number = arg.constant;
    if (arg.kind != Arg::Kind::Constant || !(number.isInt() || number.isIntList())) return std::nullopt;
    std::vector<ExprId> exprs;
    for (const int64_t each : number.isInt() ? std::vector<int64_t>{number.toInt()} : number.toIntVector())
      exprs.push_back(symbols.integer(each));
    return exprs;
  }

  bool set_integers(Arg& own, std::vector<ExprId> exprs, const std::vector<ExprId>& plain, Arg::Kind kind) {
    SymbolTable& symbols = *graph_.symbols;
    if (exprs.size() != plain.size()) return false;
    bool is_constant = true;
    for (size_t i = 0; i < plain.size(); ++i) {
      const auto expr = expression_(exprs[i], plain[i]);
      if (!expr) return false;
      exprs[i] = *expr;
      is_constant = is_constant && symbols.is_constant(*expr);
    }
    if (is_constant) return true;
    own.kind = kind;
    own.constant = {};
    own.exprs.assign(exprs.begin(), exprs.end());
    return true;
  }

  static bool is_equal(const c10::IValue& a, const c10::IValue& b) {
    if (a.isTensor() != b.isTensor()) return false;
    if (!a.isTensor()) return a == b;
    const at::Tensor &x = a.toTensor(), &y = b.toTensor();
    if (x.defined() != y.defined()) return false;
    return !x.defined() || x.is_same(y) || (x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() && x.equal(y));
  }

  capture::Graph& graph_;
  TracedProgram& program_;
  const capture::Graph& plain_graph_;
  const TracedProgram& plain_;
  const Expression expression_;
  std::vector<ValueId> counterpart_;  // by value
  std::vector<capture::Relation> relations_;
};

TracedProgram copy_of(const TracedProgram& program) { return {with_numbers_as_scalars(program.joint), program.returned}; }

class Fitter {
 public:
  Fitter(SymbolTable& symbols, std::span<const int64_t> first, const SymbolTable& plain_symbols)
      : symbols_(symbols), plain_symbols_(plain_symbols), first_(first), reads_(symbols.unguarded_reads()) {
    for (size_t s = 0; s < symbols.size(); ++s) {
      const ExprId id{static_cast<uint32_t>(s)};
      if (symbols.expr(id).kind == capture::ExprKind::IntSymbol && symbols.bound_by(id) == 0) symbols_by_number_.push_back(id);
    }
    values_.assign(first.begin(), first.end());
  }

  std::optional<ExprId> operator()(ExprId own, ExprId plain) {
    if (const auto number = plain_symbols_.constant(plain); number && symbols_.bound_by(own) == 0) return of_number(own, *number);
    return is_same_for_data_sizes(symbols_, first_, own, plain_symbols_, plain) ? std::optional(own) : std::nullopt;
  }

  std::optional<ExprId> of_number(ExprId own, int64_t plain) {
    const int64_t now = symbols_.hint(own);
    // An expression that ATen inferred next to a number of the second trace, such as the -1 in x.reshape(x.size(0), -1, 4), may be valid
    // only there.
    if (!symbols_.is_constant(own) && value_in_first(own) == plain) return own;
    if (now == plain) return symbols_.integer(now);
    // The number may be what was read of a size, such as (s0 + 1)//2.
    for (const ExprId read : reads_) {
      if (symbols_.hint(read) == now && value_in_first(read) == plain) return read;
    }
    for (size_t s = 0; s < symbols_by_number_.size(); ++s) {
      if (const auto found = of_symbol(s, plain, now)) return found;
    }
    for (size_t s = 0; s < symbols_by_number_.size(); ++s) {
      for (size_t t = s; t < symbols_by_number_.size(); ++t) {
        if (const auto found = times(symbols_.mul(symbols_by_number_[s], symbols_by_number_[t]), first_[s] * first_[t], plain, now))
          return found;
      }
    }
    for (size_t s = 0; s < symbols_by_number_.size(); ++s) {
      if (plain - first_[s] == now - hint(s) && first_[s] != hint(s))
        return symbols_.add(symbols_by_number_[s], symbols_.integer(now - hint(s)));
    }
    return std::nullopt;
  }

  /// Guards that a size of 0 or 1 of a value stays so, as in a trace (Recorder::new_value). Returns false if such a size is another one in
  /// the first program.
  bool guard_small_sizes(const capture::Graph& graph) {
    const auto guard = [&](ValueId id) { return !id.defined() || guard_small_sizes(graph.values[id.index]); };
    return std::all_of(graph.inputs.begin(), graph.inputs.end(), guard) &&
           std::all_of(graph.instrs.begin(), graph.instrs.end(),
                       [&](const Instr& instr) { return std::all_of(instr.outputs.begin(), instr.outputs.end(), guard); });
  }

  /// Guards what two traces say nothing about: a read size that was the same in both stays so, and reads that gave the same numbers in both
  /// go on doing so.
  void guard_reads() {
    for (size_t i = 0; i < reads_.size(); ++i) {
      const int64_t now = symbols_.hint(reads_[i]);
      const auto in_first = value_in_first(reads_[i]);
      if (in_first == now) symbols_.pin(reads_[i]);
      for (size_t k = 0; k < i && in_first != now; ++k) {
        if (symbols_.hint(reads_[k]) != now || value_in_first(reads_[k]) != in_first) continue;
        symbols_.equal(reads_[k], reads_[i]);
        break;
      }
    }
  }

  /// Adds guards: unchanged symbols keep their value, others are at least 2. Returns false if a size is 0 or 1.
  bool guard() {
    for (size_t s = 0; s < symbols_by_number_.size(); ++s) {
      const ExprId id = symbols_by_number_[s];
      if (first_[s] == hint(s)) {
        symbols_.equal(id, symbols_.integer(first_[s]));
      } else if (first_[s] < 2 || hint(s) < 2) {
        return false;
      } else {
        symbols_.decide(capture::Cmp::LessEqual, symbols_.integer(2), id);
      }
    }
    return true;
  }

  std::optional<int64_t> value_in_first(ExprId id) {
    capture::Env env;
    const capture::Evaluator evaluator(symbols_, {id});
    if (!evaluator.evaluate({values_, {}}, env)) return std::nullopt;
    return env.integer(id);
  }

 private:
  int64_t hint(size_t s) const { return symbols_.hint(symbols_by_number_[s]); }

  bool guard_small_sizes(const capture::Value& value) {
    for (const ExprId size : value.sizes) {
      if (symbols_.is_constant(size) || symbols_.bound_by(size) != 0) continue;
      const int64_t now = symbols_.hint(size), in_first = value_in_first(size).value_or(now);
      if (std::min(now, in_first) > 1) continue;
      if (now != in_first) return false;
      symbols_.pin(size);
    }
    return true;
  }

  std::optional<ExprId> of_symbol(size_t s, int64_t plain, int64_t now) {
    const ExprId id = symbols_by_number_[s];
    if (const auto found = times(id, first_[s], plain, now)) return found;
    if (plain == 0 || now == 0 || first_[s] == hint(s)) return std::nullopt;
    const int64_t divisor = first_[s] / plain;
    if (divisor < 2 || divisor * plain != first_[s] || divisor * now != hint(s)) return std::nullopt;
    return symbols_.div(id, symbols_.integer(divisor));
  }

  std::optional<ExprId> times(ExprId id, int64_t in_first, int64_t plain, int64_t now) {
    const int64_t in_second = symbols_.hint(id);
    if (in_first == 0 || in_second == 0 || in_first == in_second || plain % in_first != 0) return std::nullopt;
    const int64_t factor = plain / in_first;
    if (factor * in_second != now) return std::nullopt;
    return symbols_.mul(id, symbols_.integer(factor));
  }

  SymbolTable& symbols_;
  const SymbolTable& plain_symbols_;
  const std::span<const int64_t> first_;
  std::vector<ExprId> symbols_by_number_;
  const std::vector<ExprId> reads_;
  std::vector<int64_t> values_;
};

}  // namespace

std::optional<TracedProgram> fit(const TracedProgram& first, std::span<const int64_t> values_in_first, const TracedProgram& second,
                                 bool infers, bool& is_too_small) {
  TracedProgram fitted = copy_of(second);
  SymbolTable& symbols = *fitted.joint.graph->symbols;
  symbols.allow_unguarded_reads(false);
  if (symbols.backed_symbols() != values_in_first.size() || symbols.float_symbols() != 0) return std::nullopt;
  const TracedProgram plain = copy_of(first);
  Fitter fitter(symbols, values_in_first, *plain.joint.graph->symbols);
  SideBySide both(fitted, plain, std::ref(fitter));
  if (!both.run()) return std::nullopt;
  // A relation may contain a number that stood for a size of that trace: (12*s0) % 16 == 0, for the -1 in x.view(x.size(0), -1).
  std::vector<capture::Relation> relations = infers ? symbols.relations() : std::vector<capture::Relation>();
  std::erase_if(relations, [&](const capture::Relation& each) { return symbols.bound_by(each.lhs) + symbols.bound_by(each.rhs) > 0; });
  relations.insert(relations.end(), both.relations().begin(), both.relations().end());
  symbols.set_relations(std::move(relations));
  if (!fitter.guard()) return std::nullopt;
  is_too_small = !fitter.guard_small_sizes(*fitted.joint.graph);
  if (is_too_small) return std::nullopt;
  if (infers) fitter.guard_reads();
  return fitted;
}

bool is_same_at(const TracedProgram& program, std::span<const int64_t> values, const TracedProgram& third) {
  TracedProgram copy = copy_of(program);
  SymbolTable& symbols = *copy.joint.graph->symbols;
  capture::Env env;
  const capture::Evaluator evaluator(symbols);
  if (!evaluator.evaluate({{values.begin(), values.end()}, {}}, env) || !evaluator.relations_hold(env)) return false;
  const TracedProgram plain = copy_of(third);
  const SymbolTable& plain_symbols = *plain.joint.graph->symbols;
  const auto is_same = [&](ExprId own, ExprId plain) {
    const auto number = plain_symbols.constant(plain);
    if (number && symbols.bound_by(own) == 0) return (symbols.is_constant(own) ? symbols.hint(own) : env.integer(own)) == *number;
    return is_same_for_data_sizes(symbols, values, own, plain_symbols, plain);
  };
  return SideBySide(copy, plain, [&](ExprId own, ExprId plain) { return is_same(own, plain) ? std::optional(own) : std::nullopt; }).run();
}

}  // namespace hindcast::engine
