// Records a call of an ATen operator, and runs it on the real tensors.

#include "capture/recorder/recorder.h"

#include "base/fork.h"
#include "capture/graph/users_op.h"
#include "capture/graph/known_op.h"
#include "capture/recorder/comparisons.h"
#include "capture/recorder/data_sizes.h"
#include "capture/recorder/dispatch.h"
#include "capture/recorder/dispatch_modes.h"
#include "capture/recorder/hidden_writes.h"
#include "capture/recorder/operator_settings.h"
#include "capture/recorder/real_arguments.h"
#include "capture/recorder/result_sizes.h"
#include "capture/recorder/where_in_code.h"
#include "capture/recorder/symbolic_strides.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <stdexcept>

namespace hindcast::capture {
namespace {

// TorchScript passes a list of another type where a list of optional tensors is declared.
void make_optional(const c10::Argument& declared, c10::IValue& input) {
  const auto* type = declared.type()->castRaw<c10::ListType>();
  if (type == nullptr || *type->getElementType() != *c10::OptionalType::ofTensor()) return;
  c10::List<std::optional<at::Tensor>> list;
  for (const c10::IValue& each : input.toListRef()) list.push_back(each.isTensor() ? std::optional(each.toTensor()) : std::nullopt);
  input = list;
}

bool is_generator_of_the_users(const c10::IValue& input) {
  if (!input.isGenerator()) return false;
  const at::Generator generator = input.toGenerator();
  return generator.defined() && generator != at::globalContext().defaultGenerator(generator.device());
}

std::vector<c10::IValue> take_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto first = stack.end() - static_cast<ptrdiff_t>(op.schema().arguments().size());
  std::vector<c10::IValue> inputs(std::make_move_iterator(first), std::make_move_iterator(stack.end()));
  stack.erase(first, stack.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].isList() && !inputs[i].isOptionalTensorList()) make_optional(op.schema().arguments()[i], inputs[i]);
  }
  return inputs;
}

// Pushes `results` with their tensors replaced, in order.
void push_results(const torch::jit::Stack& results, const std::vector<at::Tensor>& wrapped, torch::jit::Stack& stack) {
  size_t next = 0;
  for (const c10::IValue& result : results) {
    if (result.isTensor()) {
      stack.push_back(wrapped[next++]);
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (size_t i = result.toTensorVector().size(); i > 0; --i) list.push_back(wrapped[next++]);
      stack.push_back(std::move(list));
    } else {
      stack.push_back(result);
    }
  }
}

// torch.tensor() and the like make a tensor below the dispatcher, and then pass it to this operator.
void tell_made_of_numbers(Policy& policy, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  static constinit KnownOp lift_fresh("aten::lift_fresh");
  if (op == lift_fresh.get() && TracingTensor::get(stack.back().toTensor()) == nullptr) policy.was_made_of_numbers(stack.back().toTensor());
}

uint64_t settings_now() {
  static constinit base::MadeOnce<const bool> has_accelerator;
  PackedBits settings;
  settings.add(operator_settings(), kBitsOfOperatorSettings);
  settings.add(flushes_denormals(), 1);
  if (has_accelerator.by([] { return at::accelerator::getAccelerator().has_value(); }))
    settings.add(accelerator_settings(), kBitsOfAcceleratorSettings);
  return settings.word();
}

// Makes the dtype explicit for a tensor that an op makes from numbers in the default dtype, such as `ones(3)`: a backward may run under
// another default.
void name_dtype(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, const std::vector<at::Tensor>& outputs,
                std::vector<Arg>& args) {
  if (outputs.size() != 1 || !outputs[0].defined()) return;
  const auto& declared = op.schema().arguments();
  const auto is_tensor = [](const c10::IValue& input) { return input.isTensor() || input.isTensorList() || input.isOptionalTensorList(); };
  if (std::any_of(inputs.begin(), inputs.end(), is_tensor)) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].isNone() && declared[i].name() == "dtype") args[i].constant = c10::IValue(outputs[0].scalar_type());
  }
}

// The argument that the op has returned, or nullptr.
const at::Tensor* same_argument(const std::vector<c10::IValue>& inputs, const at::Tensor& output) {
  for (const c10::IValue& input : inputs) {
    if (!input.isTensor()) continue;
    const TracingTensor* traced = TracingTensor::get(input.toTensor());
    if (traced && traced->real.is_same(output)) return &input.toTensor();
  }
  return nullptr;
}

}  // namespace

// ---- an ATen call

void Recorder::call_itself(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto first = stack->end() - static_cast<ptrdiff_t>(op.schema().arguments().size());
  std::transform(first, stack->end(), first, [&](const c10::IValue& value) { return real_argument(value, *graph_.symbols); });
  const c10::impl::ExcludeDispatchKeyGuard unrecorded(kRecorderKey);
  if (!is_users(op)) return op.callBoxed(stack);
  // Autograd has seen the call already, perhaps without a formula, in which case the kernel makes a history of its own.
  std::optional<c10::DispatchKey> backend;
  std::for_each(first, stack->end(), [&](const c10::IValue& value) {
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined() && !backend) backend = tensor.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
      return tensor;
    });
  });
  for (const auto key : {backend.value_or(c10::DispatchKey::Undefined), c10::DispatchKey::CompositeExplicitAutograd}) {
    if (backend && op.hasKernelForDispatchKey(key)) return op.callBoxedForDispatchKey(key, *stack);
  }
  op.callBoxed(stack);
}

namespace {

// Whether a tensor of int64 without dimensions, in place of a number, would change the dtype of a result.
bool is_outranked_by_integers(const c10::IValue& input) {
  if (!input.isTensor() || !input.toTensor().defined()) return false;
  const at::Tensor& tensor = input.toTensor();
  const bool is_small = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) && tensor.scalar_type() != at::kLong;
  return is_small && tensor.dim() == 0 && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

void check_writes(const Policy& policy, const c10::OperatorHandle& op, const OpTraits& traits, const torch::jit::Stack& stack) {
  for (const uint32_t i : traits.written) {
    const c10::IValue& target = *(stack.end() - static_cast<ptrdiff_t>(op.schema().arguments().size() - i));
    if (target.isTensor()) policy.check_write(target.toTensor());
  }
}

}  // namespace

void Recorder::put_in_numbers(std::vector<c10::IValue>& inputs) {
  const bool may_be_symbols = std::none_of(inputs.begin(), inputs.end(), is_outranked_by_integers);
  for (c10::IValue& input : inputs) {
    if (!input.isTensor()) continue;
    at::Tensor number = TracingTensor::with_its_number(input.toTensor(), may_be_symbols);
    if (number.is_same(input.toTensor())) continue;
    placeholders_.push_back({input.toTensor(), real_of(number)});
    input = std::move(number);
  }
}

// Autograd may have saved a placeholder. Once recording has ended, LibTorch's formulas compute with its value.
void Recorder::fill_placeholders() {
  for (const auto& [placeholder, number] : std::exchange(placeholders_, {})) {
    unrecorded([&, of = at::Tensor(placeholder), to = number.item()]() mutable {
      const at::AutoDispatchBelowADInplaceOrView below;
      of.fill_(to);
    });
  }
}

void Recorder::record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (is_released_) return call_itself(op, stack);
  tell_made_of_numbers(policy_, op, *stack);
  const OpTraits& traits = traits_of(op);
  if (traits.composite) return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  check_writes(policy_, op, traits, *stack);
  if (traits.view) return record_view_in_place(op, *traits.view, stack);

  std::vector<c10::IValue> inputs = take_arguments(op, *stack);
  put_in_numbers(inputs);
  const std::vector<c10::IValue> given = inputs;
  note_lost_history(inputs);
  seen_ = seen_now(op, inputs);
  lift_all(inputs);
  if (const auto hidden = hidden_write(op, inputs)) return record_hidden_write(*hidden, given, *stack);
  if (record_by_numbers(op, inputs, stack)) return;
  check_traits(op, traits, inputs);
  check_autograd(op);
  std::vector<Arg> args;
  for (const c10::IValue& input : inputs) args.push_back(make_arg(input));
  const Written written = find_written(op, traits, inputs);
  // Before the op has an effect: a caller that runs the formula in another way must not run the op twice.
  if (refusal_) {
    if (!continues_eagerly_) throw std::runtime_error(*refusal_);
    const size_t first = stack->size();
    release();
    stack->insert(stack->end(), given.begin(), given.end());
    call_itself(op, stack);
    note_results(tensors_of({stack->begin() + static_cast<ptrdiff_t>(first), stack->end()}));
    return;
  }

  const std::vector<int64_t> sizes = written.target ? written.target->real.sizes().vec() : std::vector<int64_t>();
  const torch::jit::Stack results = call_real(op, inputs);
  if (traits.draws_random_numbers()) policy_.has_drawn_random_numbers();
  const std::vector<at::Tensor> outputs = tensors_of(results);
  const bool is_resized = written.target && written.target->real.sizes() != sizes;
  if (is_resized) refuse(op, "resizes its argument");
  if (is_resized || !have_layouts(outputs)) {
    // The op has run, and must not run again for its results.
    std::vector<at::Tensor> own;
    for (const at::Tensor& output : outputs) {
      const at::Tensor* same = output.defined() ? same_argument(inputs, output) : nullptr;
      own.push_back(same ? given_back(*same) : output);
    }
    if (!continues_eagerly_) throw std::runtime_error(*refusal_);
    release();
    note_results(own);
    return push_results(results, own, *stack);
  }
  if (outputs.empty() && !results.empty()) {
    tell_answer(op, inputs, results[0]);
    return push_results(results, {}, *stack);
  }
  name_dtype(op, inputs, outputs, args);
  const Gradients gradients = note_gradients(op, traits, inputs, outputs);
  const auto wrapped = written.target ? record_write(op, std::move(args), written, inputs, outputs) : record_op(op, args, inputs, outputs);
  mark_gradients(wrapped, gradients);
  push_results(results, wrapped, *stack);
}

void Recorder::record_in_mode(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr const char* kWhy = "runs in a dispatch mode that the function opens";
  if (is_released_) return call_itself(op, stack);
  if (any_tensor(op, *stack, [](const at::Tensor& tensor) { return TracingTensor::get(tensor) != nullptr; })) {
    refuse(op, kWhy);
    return record(op, stack);
  }
  const size_t first = stack->size() - op.schema().arguments().size();
  unrecorded([&] { op.callBoxed(stack); });
  const std::vector<at::Tensor> made = tensors_of({stack->begin() + static_cast<ptrdiff_t>(first), stack->end()});
  if (std::none_of(made.begin(), made.end(), has_plain_data)) return;
  refuse(op, kWhy);
  if (!continues_eagerly_) throw std::runtime_error(*refusal_);
  release();
  note_results(made);
}

void Recorder::note_lost_history(const std::vector<c10::IValue>& inputs) {
  if (lost_history_ || !lifts_) return;
  had_saved_tensor_hooks_ = had_saved_tensor_hooks_ || at::SavedTensorDefaultHooks::get_hooks().has_value();
  for (const c10::IValue& input : inputs) {
    each_tensor(input, [&](const at::Tensor& tensor) {
      const TracingTensor* traced = TracingTensor::get(tensor);
      lost_history_ = lost_history_ || (traced != nullptr && traced->lost_history && !tensor.requires_grad());
      return tensor;
    });
  }
}

// Refused at once: a stand-in cannot represent such a layout, and autograd, if active above, would ask for it.
bool Recorder::have_layouts(const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || (!output.is_nested() && output.layout() == at::kStrided && !output.is_quantized())) continue;
    refuse("makes a tensor that is not strided");
    return false;
  }
  return true;
}

// The formula has received a number, and may branch on it.
void Recorder::tell_answer(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, const c10::IValue& answer) {
  if (!answer.isScalar()) return;
  at::Tensor asked = inputs[0].toTensor();
  if (is_comparison(op.operator_name())) {
    if (op.operator_name() == kEqual && !have_same_sizes(asked, inputs[1].toTensor())) return;  // allclose() broadcasts
    const Comparison comparison = as_tensor(op.operator_name(), inputs);
    torch::jit::Stack stack = comparison.arguments;
    record(comparison.of_elements, &stack);
    record(comparison.of_all, &stack);
    asked = stack[0].toTensor();
    bool is_same = false;
    unrecorded([&] { is_same = real_of(asked).item<bool>() == answer.toBool(); });
    if (!is_same) refuse(op, "says something else than its elements do");
  }
  if (!is_released_) policy_.told_number(value_of(asked), answer.toScalar());
}

// Symbolic sizes are equal, or not, for all sizes that the graph is for.
bool Recorder::have_same_sizes(const at::Tensor& a, const at::Tensor& b) const {
  const auto one = a.sym_sizes(), other = b.sym_sizes();
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const c10::SymInt& x, const c10::SymInt& y) { return x == y; });
}

namespace {

// The tensor that autograd replays the view of; undefined for other tensors.
at::Tensor view_of(const at::Tensor& tensor) {
  const auto* const meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  return meta != nullptr && meta->has_bw_view() && meta->get_backward_view().has_view_fn() ? meta->get_backward_view().base_ : at::Tensor();
}

}  // namespace

bool Recorder::has_views(const at::Tensor& tensor) const {
  const std::vector<at::Tensor> all = held();
  return std::any_of(all.begin(), all.end(), [&](const at::Tensor& other) { return view_of(other).is_same(tensor); });
}

void Recorder::begins_detach(const at::Tensor& tensor) {
  policy_.check_detach(tensor);
  if (!is_released_ && has_views(tensor)) refuse_now("calls detach_() of a tensor that has views");
}

// Records the op that returns the view; the argument stands for the view from now on.
void Recorder::record_view_in_place(const c10::OperatorHandle& op, const c10::OperatorHandle& view_op, torch::jit::Stack* stack) {
  const auto first = stack->end() - static_cast<ptrdiff_t>(op.schema().arguments().size());
  const std::vector<c10::IValue> given(first, stack->end());
  const at::Tensor self = given.front().toTensor();
  // Autograd would replay how this view was made, without this change; and views of it, on the changed tensor.
  if (is_given(self) || view_of(self).defined() || has_views(self)) refuse(op, describe(OpTrait::ChangesGeometry));
  record(view_op, stack);
  if (is_released_) {
    stack->pop_back();
    stack->insert(stack->end(), given.begin(), given.end());
    return call_itself(op, stack);
  }
  TracingTensor* target = TracingTensor::get(self);
  const TracingTensor* view = TracingTensor::get(stack->back().toTensor());
  if (!target || !view) return refuse(op, "changes the geometry of a tensor from outside");
  if (target != view) target->become(*view);
  stack->back() = self;
}

void Recorder::record_hidden_write(const HiddenWrite& hidden, std::vector<c10::IValue> inputs, torch::jit::Stack& stack) {
  static constinit KnownOp copy("aten::copy_");
  torch::jit::Stack results = inputs;
  if (hidden.makes_contiguous) results[0] = results[0].toTensor().contiguous();
  record(hidden.functional, &results);
  for (size_t i = 0; i < hidden.written.size(); ++i) {
    torch::jit::Stack write{inputs[hidden.written[i]], results[hidden.results + i], false};
    record(copy.get(), &write);
  }
  results.resize(hidden.results);
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

// Not for formulas of nodes, which change no setting: getAccelerator() creates static objects of LibTorch's, and a program whose global
// destructors call backward() needs them to be created, and so destroyed, no earlier than without hindcast.
void Recorder::set_lifts(bool lifts) {
  lifts_ = lifts;
  if (lifts) settings_ = settings_now();
}

void Recorder::check_settings() {
  if (lifts_ && !refusal_ && settings_now() != settings_)
    refuse("it changes a setting that operators read (default dtype, determinism, precision, cuDNN, oneDNN, denormals)");
}

static const c10::OperatorName kMkldnnRnn("aten::mkldnn_rnn_layer", "");

// as_strided() counts from the start of the storage and may reach memory outside of the argument. A program applies it to the argument
// itself. That is correct only if the function does not write to the argument: a program writes to a copy, which lacks that memory.
void Recorder::check_storage(const c10::OperatorHandle& op, const OpTraits& traits, const std::vector<c10::IValue>& inputs) {
  constexpr const char* kWhy = "or an earlier as_strided() may reach memory outside of its argument, which the function writes to";
  if (!lifts_) return;
  for (const uint32_t arg : traits.written) {
    const TracingTensor* target = inputs[arg].isTensor() ? TracingTensor::get(inputs[arg].toTensor()) : nullptr;
    if (target != nullptr && target->base->has_views_of_storage) refuse(op, kWhy);
  }
  const TracingTensor* of = traits.takes_storage ? TracingTensor::get(inputs[0].toTensor()) : nullptr;
  if (of == nullptr || of->base->fresh) return;
  const auto sizes = real_argument(inputs[1], *graph_.symbols).toIntVector();
  const auto strides = real_argument(inputs[2], *graph_.symbols).toIntVector();
  int64_t reach = 1;
  for (size_t dim = 0; dim < sizes.size() && dim < strides.size(); ++dim) reach += (sizes[dim] - 1) * strides[dim];
  const bool is_within = inputs[3].isNone() && of->real.is_non_overlapping_and_dense() && reach <= of->real.numel();
  if (is_within) return;
  if (of->base->version != 0) refuse(op, kWhy);
  of->base->has_views_of_storage = true;
}

void Recorder::check_traits(const c10::OperatorHandle& op, const OpTraits& traits, const std::vector<c10::IValue>& inputs) {
  check_settings();
  check_storage(op, traits, inputs);
  if (op.operator_name() == kMkldnnRnn)
    refuse(op, "gives its backward what it needs only where grad mode is on, and programs run with it off");
  // Whether the formula seeds the generator before it draws cannot be detected.
  if (traits.draws_random_numbers() && std::any_of(inputs.begin(), inputs.end(), is_generator_of_the_users))
    refuse(op, "draws from a generator that is not LibTorch's default one");
  for (const OpTrait trait : traits.unusual) {
    if (trait == OpTrait::DependsOnData && indexes_by_numbers(op, inputs)) continue;
    if (answer_to(trait, op) != Answer::Refuse) continue;
    refuse(op, (std::string(describe(trait)) + (lifts_ ? advise(trait) : "")).c_str());
  }
}

Answer Recorder::answer_to(OpTrait trait, const c10::OperatorHandle& op) {
  switch (trait) {
    case OpTrait::DependsOnData:
      return policy_.depends_on_data(op);
    case OpTrait::DrawsRandomNumbers:
      return policy_.draws_random_numbers(op);
    case OpTrait::ReturnsNoTensor:
      return policy_.returns_no_tensor(op);
    case OpTrait::ChangesGeometry:
    case OpTrait::WritesToSeveral:
      break;  // no instr represents that, whatever a policy would do besides
  }
  return Answer::Refuse;
}

Recorder::Written Recorder::find_written(const c10::OperatorHandle& op, const OpTraits& traits, const std::vector<c10::IValue>& inputs) {
  if (traits.written.empty()) return {};
  const uint32_t arg = traits.written.front();
  TracingTensor* target = inputs[arg].isTensor() ? TracingTensor::get(inputs[arg].toTensor()) : nullptr;
  if (!target || (!target->base->fresh && policy_.writes_to_given(op, *target) == Answer::Refuse))
    refuse(op, "writes to a tensor that the formula was given");
  return {target, arg};
}

// An op without an autograd formula runs its kernel with autograd enabled. The kernel may record a history of its own, which a program
// would lose.
void Recorder::check_autograd(const c10::OperatorHandle& op) {
  if (!seen_.is_noted || !lifts_ || !seen_.grad_mode || seen_.requires_grad == 0) return;
  for (const auto key : {c10::DispatchKey::Autograd, c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
    if (op.hasKernelForDispatchKey(key)) return;
  }
  refuse(op, "has no formula for autograd");
}

torch::jit::Stack Recorder::call_real(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs) {
  torch::jit::Stack stack;
  for (const c10::IValue& input : inputs) stack.push_back(real_argument(input, *graph_.symbols));
  const Pause pause;
  try {
    call_as_seen(op, seen_, stack);
  } catch (...) {
    has_thrown_ = true;
    throw;
  }
  return stack;
}

// `by_data`: the result and its dimension that bind an unbacked symbol.
std::vector<Sizes> Recorder::sizes_of_results(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs,
                                              const std::vector<at::Tensor>& outputs,
                                              std::optional<std::pair<size_t, size_t>>& by_data) const {
  if (!has_data_size(op.operator_name())) return result_sizes(op, inputs, outputs, *graph_.symbols);
  SizesByData found = sizes_by_data(op, inputs, outputs, *graph_.symbols);
  by_data = found.dims.front();
  return std::move(found.sizes);
}

std::vector<at::Tensor> Recorder::record_op(const c10::OperatorHandle& op, const std::vector<Arg>& args,
                                            const std::vector<c10::IValue>& inputs, const std::vector<at::Tensor>& outputs) {
  std::optional<std::pair<size_t, size_t>> by_data;
  const auto sizes = sizes_of_results(op, inputs, outputs, by_data);
  std::vector<at::Tensor> wrapped;
  std::vector<ValueId> ids;
  bool any_new = false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor* same = outputs[i].defined() ? same_argument(inputs, outputs[i]) : nullptr;
    any_new |= !same;
    ids.push_back(!outputs[i].defined() ? undefined_value() : new_value(outputs[i], sizes[i]));
    wrapped.push_back(same ? given_back(*same) : at::Tensor());
  }
  if (by_data) graph_.unbacked.push_back({ids[by_data->first], static_cast<uint32_t>(by_data->second)});
  if (any_new || outputs.empty()) {
    intern_channels_of_a_group(op, inputs, *graph_.symbols);
    Instr& instr = new_instr(op, args);
    instr.outputs = ValueIds(ids.begin(), ids.end());
    instr.seen = seen_;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined() && !wrapped[i].defined())
      wrapped[i] = wrap_output(outputs[i], ids[i], op, args, inputs, static_cast<uint32_t>(i));
  }
  return wrapped;
}

std::vector<at::Tensor> Recorder::record_write(const c10::OperatorHandle& op, std::vector<Arg> args, Written written,
                                               const std::vector<c10::IValue>& inputs, const std::vector<at::Tensor>& outputs) {
  add_mutation(op, std::move(args), written);
  std::vector<at::Tensor> wrapped;
  for (const at::Tensor& output : outputs) {
    const at::Tensor* same = same_argument(inputs, output);
    if (!same) refuse(op, "writes and returns something else");
    wrapped.push_back(same ? given_back(*same) : stand_in(output, new_value(output)));
  }
  return wrapped;
}

at::Tensor Recorder::wrap_output(at::Tensor real, ValueId id, const c10::OperatorHandle& op, const std::vector<Arg>& args,
                                 const std::vector<c10::IValue>& inputs, uint32_t output) {
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
    traced->view_values = input->view_values;
    traced->view_values.push_back(id);
    note_whether_whole(op, inputs, *input, *traced);
    graph_.values.edit(id.index).is_view = true;
    // As autograd does for its own views.
    if (!real.is_inference() && !input->real.is_inference())
      real.unsafeGetTensorImpl()->set_version_counter(input->real.unsafeGetTensorImpl()->version_counter());
    return wrapped;
  }
  return wrapped;
}

}  // namespace hindcast::capture
