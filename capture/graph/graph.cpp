#include "hindcast/graph.h"

#include "base/check.h"
#include "capture/graph/differentiable_forms.h"
#include "capture/graph/symbolic_env.h"
#include "capture/graph/unsafe_views.h"
#include "capture/graph/users_op.h"
#include "hooks/add_gradients.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/new_empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

namespace hindcast::capture {
namespace {

// The state in which instrs run, as in a backward: LibTorch's sum of a sparse and a dense gradient checks whether gradients are recorded.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView dispatch;
  c10::AutoGradMode no_grad{false};
};

// Runs instrs one by one, with values in a map: for user compilers and checks, not on the hit path.
class Interpreter {
 public:
  /// `graph`, if given: users' operators must return what its values are.
  explicit Interpreter(const Env& env, const Graph* graph = nullptr) : env_(&env), graph_(graph) {}
  /// Runs in the thread's state, not below autograd, so autograd and function transforms must support each op.
  explicit Interpreter(SymbolicEnv& sizes) : sizes_(&sizes), in_this_state_(true) {}
  std::unordered_map<uint32_t, at::Tensor> values;

  void run_if_ready(const Instr& instr) {
    bool ready = computes(instr);
    for_each_use(instr, [&](ValueId value) { ready = ready && (!value.defined() || values.contains(value.index)); });
    if (ready) run(instr);
  }

  /// `without_gradients`: the instr was captured in no-grad mode.
  void run(const Instr& instr, bool without_gradients = false) {
    if (instr.kind == InstrKind::Mutate) return write(instr, without_gradients);
    std::optional<c10::AutoGradMode> no_grad;
    if (without_gradients) no_grad.emplace(false);
    if (instr.kind == InstrKind::AddGrads) {
      // Out of place: the values may be the caller's, and others may read them.
      const at::Tensor &a = values.at(instr.inputs[0].index), &b = values.at(instr.inputs[1].index);
      values[instr.outputs[0].index] = in_this_state_ ? at::add(a, b) : hooks::add_gradients(a, b);
      return;
    }
    if (in_this_state_ && instr.args[0].constant.isTensor() && instr.op->operator_name() == c10::OperatorName("aten::lift_fresh", "")) {
      values[instr.outputs[0].index] = instr.args[0].constant.toTensor();  // a number, which a mode of Python's would get as one
      return;
    }
    const auto results = call(*instr.op, instr.args, 0xffffffffu, {}, in_this_state_ ? SeenOfAutograd() : instr.seen, &instr);
    for (size_t i = 0; i < instr.outputs.size(); ++i) values[instr.outputs[i].index] = results.at(i);
  }

  void write(const Instr& instr, bool without_gradients) {
    const at::Tensor& base = values.at(instr.base.index);
    at::Tensor copy =
        in_this_state_ ? copy_for_write(base, instr) : at::empty_strided(base.sizes(), base.strides(), base.options()).copy_(base);
    std::optional<c10::AutoGradMode> no_grad;  // after the copy: a write in no-grad mode does not change the history of its target
    if (without_gradients) no_grad.emplace(false);
    call(*instr.op, instr.args, instr.target_arg, view(copy, instr.views), instr.seen);
    values[instr.outputs[0].index] = std::move(copy);
  }

  at::Tensor view(at::Tensor of, const std::vector<ViewStep>& views) {
    for (const ViewStep& step : views) {
      // The write that follows must be in the history of the whole.
      of = in_this_state_ && has_tracked_view(step) ? tracked_view(step, of, arguments(step.args, step.self_arg, of))
                                                    : call(step.op, step.args, step.self_arg, of, {}).at(step.output);
    }
    return of;
  }

 private:
  // A tensor without vmap's dimension cannot take what has it.
  at::Tensor copy_for_write(const at::Tensor& base, const Instr& instr) const {
    constexpr c10::DispatchKeySet kBatched({c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched});
    const bool keeps_strides = base.is_non_overlapping_and_dense() || base.key_set().has_any(kBatched);
    at::Tensor copy = keeps_strides ? base.clone()  // of others, clone() has other strides, and views in the graph may name strides
                                    : at::empty_strided_symint(base.sym_sizes(), base.sym_strides(), base.options()).copy_(base);
    for (const Arg& arg : instr.args) {
      for (const ValueId id : arg.values) {
        if (!id.defined() || !values.at(id.index).key_set().has_any(kBatched)) continue;
        const at::Tensor batched = values.at(id.index).new_empty_symint(copy.sym_sizes(), copy.options());
        copy = at::where(at::ones({}, copy.options().dtype(at::kBool)), copy, batched);
      }
    }
    return copy;
  }

  torch::jit::Stack arguments(const std::vector<Arg>& args, uint32_t replaced, const at::Tensor& tensor) {
    torch::jit::Stack stack;
    for (uint32_t i = 0; i < args.size(); ++i) stack.push_back(i == replaced ? c10::IValue(tensor) : argument(args[i]));
    return stack;
  }

  // `instr`: whose results they are; nullptr: a view's, or a write's.
  std::vector<at::Tensor> call(const c10::OperatorHandle& op, const std::vector<Arg>& args, uint32_t replaced, const at::Tensor& tensor,
                               const SeenOfAutograd& seen, const Instr* instr = nullptr) {
    torch::jit::Stack stack = arguments(args, replaced, tensor);
    if (in_this_state_) {
      if (auto result = differentiable_form(op, stack)) return {std::move(*result)};
    }
    call_as_seen(op, seen, stack);
    if (graph_ != nullptr && instr != nullptr && seen.is_noted) expect_results(op, stack, users_results(*graph_, *instr), *env_);
    return tensors_on(stack);
  }

  c10::IValue argument(const Arg& arg) {
    const auto tensor = [&](ValueId value) { return value.defined() ? values.at(value.index) : at::Tensor(); };
    switch (arg.kind) {
      case Arg::Kind::Constant:
        return arg.constant;
      case Arg::Kind::Value:
        return tensor(arg.values[0]);
      case Arg::Kind::ValueList: {
        c10::List<at::Tensor> list;
        for (const ValueId value : arg.values) list.push_back(tensor(value));
        return list;
      }
      case Arg::Kind::OptionalValueList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const ValueId value : arg.values) list.push_back(value.defined() ? std::optional(tensor(value)) : std::nullopt);
        return list;
      }
      case Arg::Kind::Int:
        return integer(arg.exprs[0]);
      case Arg::Kind::IntList:
        return integers(arg);
      case Arg::Kind::Float:
        return env_ != nullptr ? c10::IValue(env_->real(arg.exprs[0])) : c10::IValue(sizes_->real(arg.exprs[0]));
    }
    return {};
  }

  // Plain numbers stay plain, since ops without symbolic overloads accept those too.
  c10::IValue integer(ExprId expr) { return env_ != nullptr ? c10::IValue(env_->integer(expr)) : c10::IValue(sizes_->integer(expr)); }
  c10::IValue integers(const Arg& arg) {
    std::vector<c10::SymInt> sizes;
    std::vector<int64_t> numbers;
    for (const ExprId expr : arg.exprs) {
      sizes.push_back(env_ != nullptr ? c10::SymInt(env_->integer(expr)) : sizes_->integer(expr));
      if (const auto number = sizes.back().maybe_as_int()) numbers.push_back(*number);
    }
    return numbers.size() == sizes.size() ? c10::IValue(std::move(numbers)) : c10::IValue(std::move(sizes));
  }

  const Env* const env_ = nullptr;  // exactly one of the two is set
  SymbolicEnv* const sizes_ = nullptr;
  const Graph* const graph_ = nullptr;
  const bool in_this_state_ = false;
};

template <class Instrs>
void replay_all(std::unordered_map<uint32_t, at::Tensor>& values, const Instrs& instrs, const Env& env) {
  const BelowAutograd below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard autocast(c10::autocast_dispatch_keyset);
  Interpreter interpreter(env);
  interpreter.values.swap(values);
  for (const Instr& instr : instrs) interpreter.run_if_ready(instr);
  interpreter.values.swap(values);
}

// Where sizes of input values are symbols, takes the symbols' values from the given tensors.
Bindings bindings_of(const Graph& graph, const std::vector<at::Tensor>& given) {
  Bindings bindings = bindings_at_capture(*graph.symbols);
  for (size_t i = 0; i < given.size(); ++i) {
    if (!graph.inputs[i].defined() || !given[i].defined()) continue;
    const auto& sizes = graph.values[graph.inputs[i].index].sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const Expr& size = graph.symbols->expr(sizes[d]);
      if (size.kind == ExprKind::IntSymbol) bindings.ints.at(static_cast<size_t>(size.payload.i)) = given[i].size(static_cast<int64_t>(d));
    }
  }
  return bindings;
}

// The ranges between barriers that compute anything; without inputs and outputs.
std::vector<Segment> stretches(const base::SharedList<Instr>& instrs) {
  std::vector<Segment> result;
  uint32_t first = 0;
  bool any = false;
  for (uint32_t i = 0; i <= instrs.size(); ++i) {
    if (i < instrs.size() && !is_barrier(instrs[i])) {
      any = any || computes(instrs[i]);
      continue;
    }
    if (any) result.push_back({first, i, {}, {}});
    first = i + 1;
    any = false;
  }
  return result;
}

constexpr uint32_t kNowhere = 0xffffffffu;

// By ValueId: the number of the segment that makes it, or kNowhere.
std::vector<uint32_t> makers(const Graph& graph, const std::vector<Segment>& segments) {
  std::vector<uint32_t> made_in(graph.values.size(), kNowhere);
  for (uint32_t s = 0; s < segments.size(); ++s) {
    for (uint32_t i = segments[s].first; i < segments[s].last; ++i) {
      if (!computes(graph.instrs[i])) continue;
      for (const ValueId value : graph.instrs[i].outputs) made_in[value.index] = s;
    }
  }
  return made_in;
}

}  // namespace

std::vector<Segment> Graph::segments() const {
  std::vector<Segment> result = stretches(instrs);
  const std::vector<uint32_t> made_in = makers(*this, result);
  std::vector<std::unordered_set<uint32_t>> read(result.size()), given(result.size());
  uint32_t current = 0;
  for (uint32_t i = 0; i < instrs.size(); ++i) {
    while (current < result.size() && i >= result[current].last) ++current;
    const bool inside = current < result.size() && i >= result[current].first;
    const uint32_t here = inside && (computes(instrs[i]) || waits(instrs[i])) ? current : kNowhere;
    for_each_use(instrs[i], [&](ValueId value) {
      if (!value.defined()) return;
      const uint32_t maker = made_in[value.index];
      if (maker == here && here != kNowhere) return;
      if (here != kNowhere && !waits(instrs[i]) && read[here].insert(value.index).second) result[here].inputs.push_back(value);
      if (maker != kNowhere && given[maker].insert(value.index).second) result[maker].outputs.push_back(value);
    });
  }
  for (const ValueId value : outputs) {
    const uint32_t maker = value.defined() ? made_in[value.index] : kNowhere;
    if (maker != kNowhere && given[maker].insert(value.index).second) result[maker].outputs.push_back(value);
  }
  return result;
}

std::vector<at::Tensor> Graph::run(const Segment& segment, std::vector<at::Tensor> inputs, const Bindings& bindings) const {
  if (inputs.size() != segment.inputs.size()) {
    throw std::invalid_argument(
        base::format("hindcast::Graph::run: {} tensors given, the segment reads {}", inputs.size(), segment.inputs.size()));
  }
  Env env;
  if (!Evaluator(*symbols).evaluate(bindings, env))
    throw std::invalid_argument("hindcast::Graph::run: the bindings do not fit the graph's symbols");
  const BelowAutograd below_autograd;
  Interpreter interpreter(env, this);
  for (size_t i = 0; i < inputs.size(); ++i) interpreter.values[segment.inputs[i].index] = std::move(inputs[i]);
  for (uint32_t i = segment.first; i < segment.last; ++i) {
    if (computes(instrs[i])) interpreter.run(instrs[i]);
  }
  std::vector<at::Tensor> results;
  for (const ValueId value : segment.outputs) results.push_back(interpreter.values.at(value.index));
  return results;
}

void Graph::replay(std::unordered_map<uint32_t, at::Tensor>& values) const {
  Env env;
  HC_CHECK(Evaluator(*symbols).evaluate(bindings_at_capture(*symbols), env));
  replay_all(values, instrs, env);
}

void Graph::replay(std::unordered_map<uint32_t, at::Tensor>& values, const Instr& instr, const Env& env) {
  replay_all(values, std::span(&instr, 1), env);
}

void Graph::compute(std::span<const ValueId> wanted, std::unordered_map<uint32_t, at::Tensor>& known, std::span<const c10::SymInt> sizes,
                    std::span<const double> numbers) const {
  if (sizes.size() != symbols->int_symbols() || numbers.size() != symbols->float_symbols())
    throw std::invalid_argument("hindcast::Graph::compute: the bindings do not fit the graph's symbols");
  SymbolicEnv env(*symbols, sizes, numbers);
  if (std::any_of(sizes.begin(), sizes.end(), [](const c10::SymInt& size) { return size.is_symbolic(); })) env.require_relations();
  std::unordered_set<uint32_t> needed;
  for (const ValueId value : wanted) needed.insert(value.index);
  std::vector<bool> runs(instrs.size());
  for (size_t i = instrs.size(); i-- > 0;) {
    const ValueIds& made = instrs[i].outputs;
    runs[i] = computes(instrs[i]) && std::any_of(made.begin(), made.end(), [&](ValueId value) {
                return value.defined() && needed.contains(value.index) && !known.contains(value.index);
              });
    if (runs[i]) for_each_use(instrs[i], [&](ValueId value) { needed.insert(value.index); });
  }
  const c10::impl::ExcludeDispatchKeyGuard autocast(c10::autocast_dispatch_keyset);
  Interpreter interpreter(env);
  interpreter.values.swap(known);
  for (size_t i = 0; i < instrs.size(); ++i) {
    if (!runs[i]) continue;
    interpreter.run(instrs[i], !origins.empty() && origins[instrs[i].origin] == kWithoutGradients);
  }
  interpreter.values.swap(known);
}

void Graph::compute(std::span<const ValueId> wanted, std::unordered_map<uint32_t, at::Tensor>& known, const Bindings& bindings) const {
  compute(wanted, known, std::vector<c10::SymInt>(bindings.ints.begin(), bindings.ints.end()), bindings.floats);
}

std::vector<at::Tensor> Graph::run(std::vector<at::Tensor> given) const {
  if (!outputs.empty()) return run_program(std::move(given));
  const auto all = segments();
  if (all.size() != 1)
    throw std::invalid_argument(
        base::format("hindcast::Graph::run: the graph has {} segments, expected 1; run them one by one", all.size()));
  return run(all.front(), std::move(given), bindings_at_capture(*symbols));
}

std::vector<at::Tensor> Graph::run_program(std::vector<at::Tensor> given) const {
  if (given.size() != inputs.size())
    throw std::invalid_argument(
        base::format("hindcast::Graph::run: {} tensors given, the program has {} inputs", given.size(), inputs.size()));
  Bindings bindings = bindings_of(*this, given);
  if (!unbacked.empty()) bindings.ints.resize(symbols->backed_symbols());
  const Evaluator evaluator(*symbols);
  Env env;
  if (!evaluator.evaluate(bindings, env))
    throw std::invalid_argument("hindcast::Graph::run: the inputs' sizes are none that the program can have");
  std::unordered_map<uint32_t, at::Tensor> all;
  for (size_t i = 0; i < given.size(); ++i) {
    if (inputs[i].defined()) all.emplace(inputs[i].index, std::move(given[i]));
  }
  size_t first = 0;
  for (const UnbackedSize& size : unbacked) {
    for (; !all.contains(size.value.index) && first < instrs.size(); ++first) replay(all, instrs[first], env);
    bindings.ints.push_back(all.at(size.value.index).size(size.dim));
    if (!evaluator.evaluate(bindings, env) || !evaluator.relations_hold(env))
      throw std::invalid_argument("hindcast::Graph::run: the program is not for a size that depends on data");
  }
  for (; first < instrs.size(); ++first) replay(all, instrs[first], env);
  std::vector<at::Tensor> results;
  for (const ValueId output : outputs) results.push_back(output.defined() ? all.at(output.index) : at::Tensor());
  return results;
}

at::Tensor Graph::view(at::Tensor of, const std::vector<ViewStep>& views, const Env& env) {
  return Interpreter(env).view(std::move(of), views);
}

void Graph::verify() const {
  std::vector<uint8_t> made(values.size(), 0);
  const auto make = [&](ValueId value) {
    if (!value.defined()) return;
    HC_CHECK(value.index < values.size(), "value {} of {}", value.index, values.size());
    HC_CHECK(!made[value.index], "value {} is made twice", value.index);
    made[value.index] = 1;
  };
  for (const ValueId value : inputs) make(value);
  for (size_t i = 0; i < instrs.size(); ++i) {
    const Instr& instr = instrs[i];
    for_each_use(instr, [&](ValueId value) {
      if (!value.defined()) return;
      HC_CHECK(value.index < values.size() && made[value.index], "instr {} reads value {} before it is made", i, value.index);
      HC_CHECK(!values[value.index].defined || values[value.index].dtype != at::ScalarType::Undefined,
               "instr {} reads value {}, whose dtype and sizes are not known", i, value.index);
    });
    for (const ValueId value : instr.outputs) make(value);
    if (instr.kind == InstrKind::Op || instr.kind == InstrKind::Mutate) {
      HC_CHECK(instr.op.has_value(), "instr {} has no op", i);
      HC_CHECK(instr.args.size() == instr.op->schema().arguments().size(), "instr {}: {} arguments, its schema has {}", i,
               instr.args.size(), instr.op->schema().arguments().size());
    }
    HC_CHECK(origins.empty() || instr.origin < origins.size(), "instr {} comes from {} of {} origins", i, instr.origin, origins.size());
  }
  for (const ValueId value : outputs) {
    HC_CHECK(!value.defined() || (value.index < values.size() && made[value.index]), "value {} is returned and not made", value.index);
  }
  HC_CHECK(unbacked.empty() || unbacked.size() == symbols->unbacked_symbols(), "{} sizes for {} unbacked symbols", unbacked.size(),
           symbols->unbacked_symbols());
  for (const UnbackedSize& size : unbacked) {
    HC_CHECK(size.value.defined() && made[size.value.index], "the value of an unbacked size is not made");
  }
}

std::vector<ExprId> Graph::expressions() const {
  std::vector<ExprId> needed;
  const auto add = [&](const std::vector<Arg>& args) {
    for (const Arg& arg : args) needed.insert(needed.end(), arg.exprs.begin(), arg.exprs.end());
  };
  for (const Instr& instr : instrs) {
    add(instr.args);
    for (const ViewStep& view : instr.views) add(view.args);
  }
  for (const Value& value : values) needed.insert(needed.end(), value.sizes.begin(), value.sizes.end());
  return needed;
}

std::shared_ptr<Graph> Graph::copy() const { return std::make_shared<Graph>(*this); }

void Graph::redirect(const std::function<ValueId(ValueId)>& now) {
  for (ValueId& value : outputs) value = now(value);
  for (UnbackedSize& size : unbacked) size.value = now(size.value);
}

bool Graph::binds_sizes(const Instr& instr) const {
  return std::any_of(unbacked.begin(), unbacked.end(), [&](const UnbackedSize& size) {
    return std::find(instr.outputs.begin(), instr.outputs.end(), size.value) != instr.outputs.end();
  });
}

}  // namespace hindcast::capture
