#include "capture/recorder/recorder.h"

#include "capture/recorder/libtorch_compat.h"
#include "capture/shape_rules/shape_rules.h"
#include "base/check.h"
#include "base/fork.h"
#include "base/log.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_map>

namespace hindcast::capture {
namespace {

thread_local Recorder* current_recorder = nullptr;

// What the recorder must know of an op, read once from its schema.
struct OpTraits {
  bool composite = false;                   // decomposes into other ops
  const char* refused = nullptr;            // why a node that calls it cannot be traced
  std::optional<c10::OperatorHandle> view;  // of one that changes its argument's geometry in place: the op that returns a view
  std::vector<uint32_t> written;            // arguments that it writes
};

OpTraits read_traits(const c10::OperatorHandle& op) {
  OpTraits traits;
  traits.composite =
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  const auto& schema = op.schema();
  for (uint32_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias && alias->isWrite()) traits.written.push_back(i);
  }
  if (op.hasTag(at::Tag::inplace_view)) {
    std::string name = op.operator_name().name;
    name.pop_back();  // the underscore
    traits.view = c10::Dispatcher::singleton().findSchema({name, op.operator_name().overload_name});
  }
  if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)) {
    traits.refused = "result depends on the data";
  } else if ((op.hasTag(at::Tag::inplace_view) && !traits.view) || op.operator_name().name == "aten::set_" ||
             op.operator_name().name == "aten::resize_") {
    traits.refused = "changes the geometry of its argument in place";
  } else if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    traits.refused = "draws random numbers";
  } else if (traits.written.size() > 1) {
    traits.refused = "writes to several arguments";
  }
  for (const auto& result : schema.returns()) {
    const auto& type = *result.type();
    const bool tensors =
        type.kind() == c10::TypeKind::TensorType ||
        (type.kind() == c10::TypeKind::ListType && type.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType);
    if (!tensors && !traits.refused) traits.refused = "returns something that is not a tensor";
  }
  return traits;
}

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  static auto& mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);
  static auto* table = new std::unordered_map<c10::OperatorName, OpTraits>;
  const std::lock_guard lock(mutex);
  if (auto found = table->find(op.operator_name()); found != table->end()) return found->second;
  return table->try_emplace(op.operator_name(), read_traits(op)).first->second;
}

at::Tensor real_of(const at::Tensor& tensor) {
  const TracingTensor* traced = TracingTensor::get(tensor);
  return traced ? traced->real : tensor;
}

// Behind the capture the table is only read: a size that no tensor has, but kernels of the op go by, must be there.
void intern_split_sizes(const c10::OperatorHandle& op, const std::vector<Arg>& args, SymbolTable& symbols) {
  if (op.operator_name().name != "aten::native_group_norm_backward") return;
  const c10::IValue &channels = args[6].constant, &groups = args[8].constant;
  if (channels.isInt() && groups.isInt() && groups.toInt() != 0) symbols.integer(channels.toInt() / groups.toInt());
}

// The argument as the real call takes it: real tensors, hints for symbols.
c10::IValue concrete(const c10::IValue& value, SymbolTable& symbols) {
  if (value.isTensor()) return real_of(value.toTensor());
  if (value.isSymInt()) return symbols.hint(symbols.expr_of(value.toSymInt()));
  if (value.isSymFloat()) return symbols.real_hint(symbols.expr_of(value.toSymFloat()));
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(real_of(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& item : value.toOptionalTensorVector()) list.push_back(item ? std::optional(real_of(*item)) : std::nullopt);
    return list;
  }
  if (value.isSymIntList()) {
    std::vector<int64_t> list;
    for (const c10::SymInt& size : value.toSymIntVector()) list.push_back(symbols.hint(symbols.expr_of(size)));
    return list;
  }
  return value;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (Recorder* recorder = Recorder::current()) {
    recorder->record(op, stack);
    return;
  }
  // A stand-in outlived its trace: run on what it stands for.
  const c10::impl::ExcludeDispatchKeyGuard below(kRecorderKey);
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i)
    (*stack)[i] = (*stack)[i].isTensor() ? c10::IValue(real_of((*stack)[i].toTensor())) : (*stack)[i];
  op.callBoxed(stack);
}

}  // namespace

bool recorder_available() {
  static const bool available = base::first_use([] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kRecorderKey)) {
      HC_LOG(Fallbacks, Warning, "dispatch key {} is taken by something else in this process: every autograd node runs as itself",
             c10::toString(kRecorderKey));
      return false;
    }
    static auto* library = new torch::Library(torch::Library::IMPL, "_", kRecorderKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    return true;
  });
  return available;
}

struct Recorder::Scope::Guards {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::IncludeDispatchKeyGuard include{kRecorderKey};
};

Recorder::Scope::Scope(Recorder& recorder) : guards_(std::make_unique<Guards>()), previous_(std::exchange(current_recorder, &recorder)) {}
Recorder::Scope::~Scope() { current_recorder = previous_; }

Recorder* Recorder::current() { return current_recorder; }

void Recorder::begin_node(uint32_t call) {
  call_ = call;
  first_instr_ = graph_.instrs.size();
  untraceable_.reset();
  user_formula_ = false;
}

void Recorder::drop_node() { graph_.instrs.resize(first_instr_); }

void Recorder::mark_untraceable(std::string reason) {
  if (!untraceable_) untraceable_ = std::move(reason);
}

ValueId Recorder::undefined_value() {
  graph_.values.emplace_back().defined = false;
  return {static_cast<uint32_t>(graph_.values.size() - 1)};
}

ValueId Recorder::new_value(const at::Tensor& real, std::vector<ExprId> sizes) {
  Value& value = graph_.values.emplace_back();
  value.dtype = real.scalar_type();
  value.device = real.device();
  value.sizes = std::move(sizes);
  if (real.layout() == at::kStrided) value.strides = real.strides().vec();
  return {static_cast<uint32_t>(graph_.values.size() - 1)};
}

ValueId Recorder::new_value(const at::Tensor& real) {
  std::vector<ExprId> sizes;
  for (const int64_t size : real.sizes()) sizes.push_back(graph_.symbols->integer(size));
  return new_value(real, std::move(sizes));
}

at::Tensor Recorder::stand_in(at::Tensor real, ValueId id) {
  std::vector<c10::SymInt> sizes;
  for (const ExprId size : graph_.values[id.index].sizes) sizes.push_back(graph_.symbols->make_symint(size));
  auto base = std::make_shared<Base>(Base{id});
  auto tensor = at::detail::make_tensor<TracingTensor>(std::move(real), kRecorderKey, id, std::move(base), std::move(sizes));
  if (user_formula_) TracingTensor::get(tensor)->watch_geometry();
  return tensor;
}

ValueId Recorder::value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  TracingTensor* traced = TracingTensor::get(tensor);
  if (!traced) {
    // Numbers become 0-dim tensors without passing the dispatcher (at::where(mask, 0., x)): constants of the formula.
    const bool number = tensor.dim() == 0 && (!user_formula_ || tensor.unsafeGetTensorImpl()->is_wrapped_number());
    if (!number) mark_untraceable("reads a tensor from outside of the formula");
    const ValueId id = new_value(tensor);
    Instr& instr = graph_.instrs.emplace_back();
    instr.call = call_;
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::alias", "");
    instr.op = op;
    instr.args.push_back({Arg::Kind::Constant, tensor, {}, {}});
    instr.outputs = {id};
    return id;
  }
  if (traced->version != traced->base->version) {
    ValueId id = traced->base->value;
    for (const ViewStep& view : traced->views) {
      Instr& instr = graph_.instrs.emplace_back();
      instr.call = call_;
      instr.op = view.op;
      instr.args = view.args;
      instr.args[view.self_arg] = {Arg::Kind::Value, {}, {id}, {}};
      const bool last = &view == &traced->views.back();
      Value derived = last ? graph_.values[traced->value.index] : Value{};
      // Only the viewed result is read; the others exist to keep the op's arity.
      for (uint32_t i = 0; i <= view.output; ++i) {
        graph_.values.push_back(derived);
        graph_.instrs.back().outputs.push_back({static_cast<uint32_t>(graph_.values.size() - 1)});
      }
      id = graph_.instrs.back().outputs.back();
    }
    traced->value = id;
    traced->version = traced->base->version;
  }
  return traced->value;
}

Arg Recorder::make_arg(const c10::IValue& value) {
  Arg arg;
  const auto constant = [&] {
    return arg.exprs.empty() ? true
                             : std::all_of(arg.exprs.begin(), arg.exprs.end(), [&](ExprId e) { return graph_.symbols->is_constant(e); });
  };
  if (value.isTensor()) {
    if (!value.toTensor().defined()) {
      arg.constant = value;
    } else {
      arg.kind = Arg::Kind::Value;
      arg.values = {value_of(value.toTensor())};
    }
  } else if (value.isTensorList()) {
    arg.kind = Arg::Kind::ValueList;
    for (const at::Tensor& tensor : value.toTensorVector()) arg.values.push_back(value_of(tensor));
  } else if (value.isOptionalTensorList()) {
    arg.kind = Arg::Kind::OptionalValueList;
    for (const auto& item : value.toOptionalTensorVector()) arg.values.push_back(item ? value_of(*item) : ValueId{});
  } else if (value.isSymInt()) {
    arg.kind = Arg::Kind::Int;
    arg.exprs = {graph_.symbols->expr_of(value.toSymInt())};
    if (constant()) arg = {Arg::Kind::Constant, concrete(value, *graph_.symbols), {}, {}};
  } else if (value.isSymIntList()) {
    arg.kind = Arg::Kind::IntList;
    for (const c10::SymInt& size : value.toSymIntVector()) arg.exprs.push_back(graph_.symbols->expr_of(size));
    if (constant()) arg = {Arg::Kind::Constant, concrete(value, *graph_.symbols), {}, {}};
  } else if (value.isSymFloat()) {
    arg.kind = Arg::Kind::Float;
    arg.exprs = {graph_.symbols->expr_of(value.toSymFloat())};
  } else {
    arg.constant = value;
  }
  return arg;
}

std::vector<std::vector<ExprId>> Recorder::output_sizes(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs,
                                                        const std::vector<at::Tensor>& outputs) {
  SymbolTable& symbols = *graph_.symbols;
  std::vector<std::vector<ExprId>> constants;
  for (const at::Tensor& output : outputs) {
    auto& sizes = constants.emplace_back();
    if (!output.defined()) continue;
    for (const int64_t size : output.sizes()) sizes.push_back(symbols.integer(size));
  }
  if (symbols.int_symbols() == 0) return constants;

  const auto sizes_of = [&](const at::Tensor& tensor) {
    std::vector<ExprId> sizes;
    if (const TracingTensor* traced = TracingTensor::get(tensor)) {
      for (const c10::SymInt& size : traced->traced_sizes()) sizes.push_back(symbols.expr_of(size));
    } else {
      for (const int64_t size : tensor.sizes()) sizes.push_back(symbols.integer(size));
    }
    return sizes;
  };
  std::vector<Argument> arguments;
  std::vector<ExprId> dynamic;  // everything that a rule-less op must pin
  const auto note = [&](const std::vector<ExprId>& sizes) { dynamic.insert(dynamic.end(), sizes.begin(), sizes.end()); };
  for (const c10::IValue& input : inputs) {
    if (input.isTensor() && input.toTensor().defined()) {
      arguments.push_back(Argument::tensor(sizes_of(input.toTensor())));
      note(sizes_of(input.toTensor()));
    } else if (input.isTensorList()) {
      std::vector<std::vector<ExprId>> list;
      for (const at::Tensor& tensor : input.toTensorVector()) {
        list.push_back(tensor.defined() ? sizes_of(tensor) : std::vector<ExprId>{});
        note(list.back());
      }
      arguments.push_back(Argument::tensors(std::move(list)));
    } else if (input.isOptionalTensorList()) {
      std::vector<std::optional<IndexTensor>> list;
      for (const auto& item : input.toOptionalTensorVector()) {
        if (item && item->defined()) {
          list.push_back(IndexTensor{sizes_of(*item), item->scalar_type()});
          note(list.back()->sizes);
        } else {
          list.emplace_back();
        }
      }
      arguments.push_back(Argument::optional_tensors(std::move(list)));
    } else {
      if (input.isSymInt()) note({symbols.expr_of(input.toSymInt())});
      if (input.isSymIntList()) {
        for (const c10::SymInt& size : input.toSymIntVector()) note({symbols.expr_of(size)});
      }
      arguments.push_back(Argument::other(input));
    }
  }
  if (std::all_of(dynamic.begin(), dynamic.end(), [&](ExprId e) { return symbols.is_constant(e); })) return constants;
  std::vector<std::vector<int64_t>> real;
  for (const at::Tensor& output : outputs) real.push_back(output.defined() ? output.sizes().vec() : std::vector<int64_t>{});
  if (auto sizes = infer_sizes(op, arguments, symbols, real); sizes && matches_hints(*sizes, symbols, real)) return *sizes;
  HC_LOG(GraphCode, Debug, "no shape rule for {}: its dynamic sizes are pinned", c10::toString(op.operator_name()));
  for (const ExprId size : dynamic) symbols.pin(size);
  return constants;
}

void Recorder::record_write(const c10::OperatorHandle& op, std::vector<Arg> args, Written written) {
  TracingTensor& target = *written.target;
  Instr& instr = graph_.instrs.emplace_back();
  instr.kind = InstrKind::Mutate;
  instr.call = call_;
  instr.op = op;
  instr.args = std::move(args);
  instr.target_arg = written.arg;
  instr.args[written.arg] = {};
  instr.base = target.base->value;
  instr.views = target.views;
  graph_.values.push_back(graph_.values[target.base->value.index]);
  const ValueId id{static_cast<uint32_t>(graph_.values.size() - 1)};
  instr.outputs = {id};
  target.base->value = id;
  ++target.base->version;
  if (target.views.empty()) {
    target.value = id;
    target.version = target.base->version;
  }
}

at::Tensor Recorder::wrap_output(at::Tensor real, ValueId id, const c10::OperatorHandle& op, const std::vector<Arg>& args,
                                 const std::vector<c10::IValue>& inputs, uint32_t output) {
  if (real.layout() != at::kStrided || real.is_quantized() || real.is_nested()) mark_untraceable("makes a tensor that is not strided");
  at::Tensor wrapped = stand_in(real, id);
  TracingTensor* traced = TracingTensor::get(wrapped);
  traced->base->fresh = true;
  if (!real.has_storage()) return wrapped;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].isTensor()) continue;
    const TracingTensor* input = TracingTensor::get(inputs[i].toTensor());
    if (!input || !input->real.has_storage() || !real.is_alias_of(input->real)) continue;
    traced->base = input->base;
    traced->version = input->base->version;
    traced->views = input->views;
    traced->views.push_back({op, args, i, output});
    graph_.values[id.index].is_view = true;
    return wrapped;
  }
  return wrapped;
}

void Recorder::record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  if (traits.composite) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  if (traits.view) {
    const at::Tensor self = (*stack)[stack->size() - op.schema().arguments().size()].toTensor();
    record(*traits.view, stack);
    TracingTensor* target = TracingTensor::get(self);
    const TracingTensor* view = TracingTensor::get(stack->back().toTensor());
    if (target && view) {
      if (target != view) target->become(*view);
      stack->back() = self;
    } else {
      mark_untraceable(c10::toString(op.operator_name()) + ": changes the geometry of a tensor from outside");
    }
    return;
  }
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  std::vector<c10::IValue> inputs(std::make_move_iterator(stack->end() - count), std::make_move_iterator(stack->end()));
  stack->resize(stack->size() - count);
  // Indexing is declared to depend on the data for the sake of masks; with numbers it does not.
  static const c10::OperatorName kIndex("aten::index", "Tensor");
  const auto by_mask = [&] {
    const auto indices = inputs[1].toOptionalTensorVector();
    return std::any_of(indices.begin(), indices.end(), [](const auto& index) {
      return index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
    });
  };
  if (traits.refused && (op.operator_name() != kIndex || by_mask()))
    mark_untraceable(c10::toString(op.operator_name()) + ": " + traits.refused);

  std::vector<Arg> args;
  Written written;
  for (const c10::IValue& input : inputs) args.push_back(make_arg(input));
  if (!traits.written.empty()) {
    written.arg = traits.written.front();
    written.target = inputs[written.arg].isTensor() ? TracingTensor::get(inputs[written.arg].toTensor()) : nullptr;
    if (!written.target || !written.target->base->fresh)
      mark_untraceable(c10::toString(op.operator_name()) + ": writes to a tensor that the formula was given");
  }
  // Before the op has an effect: the node is called as itself, and the op must not have run twice then.
  if (untraceable_) throw std::runtime_error(*untraceable_);

  torch::jit::Stack real;
  for (const c10::IValue& input : inputs) real.push_back(concrete(input, *graph_.symbols));
  {
    const c10::impl::ExcludeDispatchKeyGuard below(kRecorderKey);
    Recorder* const recorder = std::exchange(current_recorder, nullptr);
    try {
      op.callBoxed(real);
    } catch (...) {
      current_recorder = recorder;
      throw;
    }
    current_recorder = recorder;
  }

  // Flatten, find results that are arguments, make values for the rest.
  std::vector<at::Tensor> outputs;
  for (const c10::IValue& result : real) {
    if (result.isTensor())
      outputs.push_back(result.toTensor());
    else if (result.isTensorList())
      for (const at::Tensor& tensor : result.toTensorVector()) outputs.push_back(tensor);
  }
  const auto same_argument = [&](const at::Tensor& output) -> const at::Tensor* {
    for (const c10::IValue& input : inputs) {
      if (!input.isTensor()) continue;
      const TracingTensor* traced = TracingTensor::get(input.toTensor());
      if (traced && traced->real.is_same(output)) return &input.toTensor();
    }
    return nullptr;
  };
  std::vector<at::Tensor> wrapped;
  if (written.target) {
    record_write(op, std::move(args), written);
    for (const at::Tensor& output : outputs) {
      const at::Tensor* same = same_argument(output);
      if (!same) mark_untraceable(c10::toString(op.operator_name()) + ": writes and returns something else");
      wrapped.push_back(same ? *same : stand_in(output, new_value(output)));
    }
  } else {
    const auto sizes = output_sizes(op, inputs, outputs);
    std::vector<ValueId> ids;
    bool any_new = false;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor* same = outputs[i].defined() ? same_argument(outputs[i]) : nullptr;
      any_new |= !same;
      ids.push_back(!outputs[i].defined() ? undefined_value() : new_value(outputs[i], sizes[i]));
      wrapped.push_back(same ? *same : at::Tensor());
    }
    if (any_new || outputs.empty()) {
      intern_split_sizes(op, args, *graph_.symbols);
      Instr& instr = graph_.instrs.emplace_back();
      instr.call = call_;
      instr.op = op;
      instr.args = args;
      instr.outputs = ids;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].defined() && !wrapped[i].defined()) {
        wrapped[i] = wrap_output(outputs[i], ids[i], op, args, inputs, static_cast<uint32_t>(i));
      }
    }
  }

  size_t next = 0;
  for (const c10::IValue& result : real) {
    if (result.isTensor()) {
      stack->push_back(wrapped[next++]);
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (size_t i = result.toTensorVector().size(); i > 0; --i) list.push_back(wrapped[next++]);
      stack->push_back(std::move(list));
    } else {
      stack->push_back(result);
    }
  }
}

}  // namespace hindcast::capture
