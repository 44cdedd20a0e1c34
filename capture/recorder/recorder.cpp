#include "capture/recorder/recorder.h"

#include "capture/graph/known_op.h"
#include "capture/recorder/dispatch.h"
#include "capture/recorder/where_in_code.h"
#include "capture/recorder/symbolic_strides.h"

#include <ATen/SavedTensorHooks.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

namespace hindcast::capture {

Recorder::Recorder(Graph& graph, Policy& policy)
    : graph_(graph), policy_(policy), number_([] {
        static std::atomic<uint64_t> last = 0;
        return ++last;
      }()) {}

// ---- a formula

void Recorder::begin(uint32_t call) {
  call_ = call;
  first_instr_ = graph_.instrs.size();
  forget_dropped_masks();
  refusal_.reset();
  origin_without_gradients_.reset();
  derived_.clear();
  has_absent_gradients_ = has_mixed_gradients_ = false;
  user_formula_ = false;
  formula_ = nullptr;
}

void Recorder::rollback() { graph_.instrs.truncate(first_instr_); }

void Recorder::refuse(std::string reason) {
  if (refusal_) return;
  refusal_ = std::move(reason);
  if (lifts_) *refusal_ += where_in_code();
}

void Recorder::refuse_now(std::string reason) {
  refuse(std::move(reason));
  if (!continues_eagerly_) throw std::runtime_error(*refusal_);
  release();
}

void Recorder::refuse(const c10::OperatorHandle& op, const char* reason) { refuse(c10::toString(op.operator_name()) + ": " + reason); }

// ---- values

ValueId Recorder::undefined_value() {
  graph_.values.emplace_back().defined = false;
  return {static_cast<uint32_t>(graph_.values.size() - 1)};
}

ValueId Recorder::new_value(const at::Tensor& real, std::vector<ExprId> sizes) {
  // A size that is 0 or 1 now is so wherever the program runs: kernels are chosen for it, and strides say nothing about other sizes.
  for (const ExprId size : sizes) {
    if (!graph_.symbols->is_constant(size) && graph_.symbols->hint(size) <= 1) graph_.symbols->pin(size);
  }
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
  auto base = std::make_shared<Base>(Base{.value = id, .recorder = number_});
  const bool has_symbols = graph_.symbols->int_symbols() != 0;
  const bool has_symbolic_strides = has_symbols && real.layout() == at::kStrided && !real.is_non_overlapping_and_dense();
  const at::Tensor tensor(TracingTensor::make(std::move(real), id, std::move(base), std::move(sizes)));
  if (has_symbolic_strides) TracingTensor::get(tensor)->watch_strides();
  if (has_symbols || lifts_) TracingTensor::get(tensor)->be_no_zero_tensor();
  if (user_formula_ || lifts_) TracingTensor::get(tensor)->watch_geometry();
  if (lifts_) made_.emplace_back(tensor.getIntrusivePtr());
  return tensor;
}

void Recorder::note_copy(const c10::intrusive_ptr<TracingTensor>& copy) {
  if (lifts_ && copy->base->recorder == number_) made_.emplace_back(c10::intrusive_ptr<c10::TensorImpl>(copy));
}

std::vector<at::Tensor> Recorder::held() const {
  std::vector<at::Tensor> held;
  for (const auto& made : made_) {
    if (auto impl = made.lock()) held.emplace_back(std::move(impl));
  }
  return held;
}

// Notes the results of the op that ended the recording: autograd took its edges and sizes before the stand-ins became plain.
void Recorder::note_results(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) {
    if (result.defined()) made_.emplace_back(result.getIntrusivePtr());
  }
}

bool Recorder::has_wrappers() {
  has_wrappers_ = has_wrappers_ || c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  return has_wrappers_;
}

void Recorder::is_asked_for_memory() {
  if (!continues_eagerly_ || is_released_ || !policy_.may_read_memory()) return;
  refuse("it reads the memory of a tensor (data_ptr, accessor)");
  release();
}

void Recorder::release() {
  if (std::exchange(is_released_, true)) return;
  fill_placeholders();
  lifted_.clear();
  lifted_of_.clear();
  for (const at::Tensor& stand_in : held()) {
    if (TracingTensor* traced = TracingTensor::get(stand_in)) traced->become_plain();
  }
  policy_.released();
}

// Numbers become 0-dim tensors without passing the dispatcher (at::where(mask, 0., x)): such tensors are constants of the formula.
bool Recorder::is_number(const at::Tensor& tensor) const {
  return tensor.dim() == 0 && ((!user_formula_ && !lifts_) || tensor.unsafeGetTensorImpl()->is_wrapped_number());
}

void Recorder::note_known(const at::Tensor& computed, const at::Tensor& known) {
  const auto is_own = [&](const at::Tensor& tensor) {
    const TracingTensor* traced = TracingTensor::get(tensor);
    return traced != nullptr && traced->base->recorder == number_;
  };
  if (!is_released_ && is_own(computed) && is_own(known)) known_values_.emplace_back(value_of(computed), value_of(known));
}

at::Tensor Recorder::lifted(const at::Tensor& tensor) {
  if (!tensor.defined() || is_released_) return tensor;
  if (const TracingTensor* traced = TracingTensor::get(tensor)) {
    return traced->base->recorder == number_ ? tensor : lifted(traced->real);  // from a finished trace
  }
  if (is_number(tensor)) return tensor;
  const auto known = lifted_of_.find(tensor.unsafeGetTensorImpl());
  if (known != lifted_of_.end()) return lifted_[known->second].stand_in;
  at::Tensor stand_in = policy_.lift(tensor);
  if (!stand_in.defined()) return tensor;
  lifted_of_.emplace(tensor.unsafeGetTensorImpl(), static_cast<uint32_t>(lifted_.size()));
  lifted_.push_back({tensor, std::move(stand_in)});
  return lifted_.back().stand_in;
}

// A write returns the very tensor that it received.
const at::Tensor& Recorder::given_back(const at::Tensor& stand_in) const {
  const auto found = std::find_if(lifted_.begin(), lifted_.end(), [&](const Lifted& each) { return each.stand_in.is_same(stand_in); });
  return found == lifted_.end() ? stand_in : found->outside;
}

void Recorder::lift_all(std::vector<c10::IValue>& inputs) {
  for (c10::IValue& input : inputs) {
    input = each_tensor(input, [&](const at::Tensor& tensor) { return lifted(tensor); });
  }
}

ValueId Recorder::value_of(const at::Tensor& given) {
  if (!given.defined()) return {};
  const at::Tensor tensor = lifted(given);
  TracingTensor* traced = TracingTensor::get(tensor);
  if (!traced) return value_from_outside(tensor);
  if (traced->version != traced->base->version) derive_again(*traced);
  return traced->value;
}

ValueId Recorder::value_from_outside(const at::Tensor& tensor) {
  if (!is_number(tensor)) refuse("reads a tensor from outside of the formula");
  const ValueId id = new_value(tensor);
  static constinit KnownOp alias("aten::alias");
  // It returns the tensor itself: a wrapped number stays one for type promotion, in `loss * 0.5` of a 0-dim float.
  static constinit KnownOp itself("aten::lift_fresh");
  const auto& op = tensor.unsafeGetTensorImpl()->is_wrapped_number() ? itself.get() : alias.get();
  new_instr(op, {{Arg::Kind::Constant, tensor, {}, {}}}).outputs = {id};
  return id;
}

// ---- instrs

Instr& Recorder::new_instr(const c10::OperatorHandle& op, std::vector<Arg> args, InstrKind kind) {
  Instr& instr = graph_.instrs.emplace_back();
  instr.kind = kind;
  instr.origin = origin_without_gradients_ && !c10::GradMode::is_enabled() ? *origin_without_gradients_ : call_;
  instr.formula = number_of_formula();
  instr.op = op;
  instr.args = std::move(args);
  return instr;
}

// A node that is allocated at the address of the last one gets the same number: then both count as one formula.
uint32_t Recorder::number_of_formula() {
  if (!lifts_) return 0;
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return 0;
  if (std::exchange(formula_, node.get()) != node.get()) ++formulas_;
  return formulas_;
}

bool Recorder::is_constant(const Arg& arg) const {
  return std::all_of(arg.exprs.begin(), arg.exprs.end(), [&](ExprId expr) { return graph_.symbols->is_constant(expr); });
}

Arg Recorder::make_arg(const c10::IValue& value) {
  Arg arg;
  if (value.isTensor() && value.toTensor().defined()) {
    arg.kind = Arg::Kind::Value;
    arg.values = {value_of(value.toTensor())};
  } else if (value.isTensorList()) {
    arg.kind = Arg::Kind::ValueList;
    for (const at::Tensor& tensor : value.toTensorVector()) arg.values.push_back(value_of(tensor));
  } else if (value.isOptionalTensorList()) {
    arg.kind = Arg::Kind::OptionalValueList;
    for (const auto& item : value.toOptionalTensorVector()) arg.values.push_back(item ? value_of(*item) : ValueId{});
  } else if (value.isSymInt()) {
    arg.kind = Arg::Kind::Int;
    arg.exprs = {graph_.symbols->expr_of(value.toSymInt())};
    if (is_constant(arg)) arg = {Arg::Kind::Constant, real_argument(value, *graph_.symbols), {}, {}};
  } else if (value.isSymIntList()) {
    arg.kind = Arg::Kind::IntList;
    for (const c10::SymInt& size : value.toSymIntVector()) arg.exprs.push_back(graph_.symbols->expr_of(size));
    if (is_constant(arg)) arg = {Arg::Kind::Constant, real_argument(value, *graph_.symbols), {}, {}};
  } else if (value.isSymFloat()) {
    arg.kind = Arg::Kind::Float;
    arg.exprs = {graph_.symbols->expr_of(value.toSymFloat())};
  } else if (value.isSymBool()) {
    arg.constant = value.toSymBool().guard_bool(__FILE__, __LINE__);
  } else {
    arg.constant = value;
  }
  return arg;
}

}  // namespace hindcast::capture
