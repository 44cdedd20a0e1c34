// What the recorder asks about ops that a program cannot simply repeat: random numbers, values that are read, tensors that are written, and
// tensors from outside.

#include "capture/function/function_trace.h"

#include "capture/backward/facts.h"
#include "capture/function/input_node.h"
#include "capture/function/places.h"
#include "capture/recorder/comparisons.h"
#include "capture/recorder/data_sizes.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <utility>

namespace hindcast::capture {

std::optional<uint32_t> FunctionTrace::primal_of(const Base* base) const {
  for (uint32_t i = 0; i < primals_.size(); ++i) {
    const TracingTensor* traced = TracingTensor::get(primals_[i].stand_in);
    if (traced && traced->base.get() == base) return i;
  }
  return std::nullopt;
}

Answer FunctionTrace::draws_random_numbers(const c10::OperatorHandle&) {
  if (was_random_state_set()) recorder_.refuse(kSetsRandomState);
  if (!random_state_.defined()) random_state_ = RandomState::of(real_inputs());
  return Answer::Record;
}

Answer FunctionTrace::depends_on_data(const c10::OperatorHandle& op) {
  if (is_forward_ && has_data_size(op.operator_name())) return Answer::Record;
  return returns_no_tensor(op);
}

static const c10::OperatorName kItem("aten::_local_scalar_dense", "");

// The function's own item() and equal() are compared in every call (AskedNumber); one inside an autograd formula cannot be.
Answer FunctionTrace::returns_no_tensor(const c10::OperatorHandle& op) {
  return is_forward_ && (op.operator_name() == kItem || is_comparison(op.operator_name())) ? Answer::Record : Answer::Refuse;
}

void FunctionTrace::told_number(ValueId of, const at::Scalar& number) {
  if (is_forward_) asked_.emplace_back(of, number);
}

bool FunctionTrace::is_made_of_numbers(uint32_t primal) const {
  if (primal < input_count() || made_of_numbers_.empty()) return false;
  return std::any_of(made_of_numbers_.begin(), made_of_numbers_.end(),
                     [&](const at::Tensor& made) { return shares_memory(made, primals_[primal].real); });
}

// A tensor that torch.tensor() or the like makes in the function is a constant input of the program. If the function writes to it or
// returns it, the program copies that input in each call. False: the primal is no such tensor, or cannot be copied.
bool FunctionTrace::copy_if_made_of_numbers(uint32_t primal) {
  if (!is_forward_ || !is_made_of_numbers(primal)) return false;
  Primal& known = primals_[primal];
  at::Tensor& input = lifted_[primal - input_count()];
  if (known.outside.is_valid() || !is_alone_in_memory(known)) return false;
  copied_numbers_.push_back({input, known.stand_in});
  recorder_.become_copy(known.stand_in);
  TracingTensor::get(known.stand_in)->real = without_history(input);
  Recorder::unrecorded([&] { known.real = input = input.clone(); });
  known.stand_in.reset();
  return true;
}

const TracingTensor* FunctionTrace::traced_of(const at::Tensor& tensor) const {
  for (const CopiedNumbers& copied : copied_numbers_) {
    if (copied.tensor.is_same(tensor)) return TracingTensor::get(copied.stand_in);
  }
  return TracingTensor::get(tensor);
}

bool FunctionTrace::is_alone_in_memory(const Primal& primal) const {
  return std::none_of(primals_.begin(), primals_.end(),
                      [&](const Primal& other) { return &other != &primal && shares_memory(other.real, primal.real); });
}

// Throws LibTorch's error for a write to a view, such as a piece of chunk(): the stand-in is no view.
static void check_that_it_may_be_written(const at::Tensor& argument) {
  if (!argument.requires_grad() || !at::GradMode::is_enabled()) return;
  auto* const meta = torch::autograd::impl::get_view_autograd_meta(argument);
  if (meta == nullptr || !meta->has_bw_view()) return;
  torch::autograd::handle_view_on_rebase(meta);
  TORCH_CHECK(!(argument._base().is_leaf() && argument._base().requires_grad()),
              "a view of a leaf Variable that requires grad is being used in an in-place operation.");
}

void FunctionTrace::check_write(const at::Tensor& target) const {
  const TracingTensor* traced = inputs_ != nullptr ? TracingTensor::get(target) : nullptr;
  const auto written = traced != nullptr ? primal_of(traced->base.get()) : std::nullopt;
  if (written && *written < input_count()) check_that_it_may_be_written((*inputs_)[*written]);
}

void FunctionTrace::check_detach(const at::Tensor& target) const {
  for (size_t i = 0; inputs_ != nullptr && i < inputs_->size(); ++i) {
    if (primals_[i].stand_in.is_same(target) && (*inputs_)[i].is_view()) at::Tensor((*inputs_)[i]).detach_();  // throws: it is a view
  }
}

Answer FunctionTrace::writes_to_given(const c10::OperatorHandle&, const TracingTensor& target) {
  const auto written = primal_of(target.base.get());
  if (!written) return Answer::Record;  // a tensor that the forward made
  if (!is_forward_) return Answer::Refuse;
  if (copy_if_made_of_numbers(*written)) return Answer::Record;
  if (is_made_of_numbers(*written)) {
    recorder_.refuse(
        "it writes to a tensor that torch.tensor() or the like has made, and that requires grad or shares memory with another one");
    return Answer::Refuse;
  }
  Primal& primal = primals_[*written];
  const bool is_lifted = *written >= input_count();
  if (is_lifted && primal.outside.is_valid() && !primal.is_leaf && at::GradMode::is_enabled()) return Answer::Refuse;
  // A program copies what it writes to. A copy of an expanded tensor, with the same strides, cannot be written as a whole.
  if (!is_alone_in_memory(primal) || at::has_internal_overlap(primal.real) == at::MemOverlap::Yes) return Answer::Refuse;
  if (!primal.before.defined()) {
    Recorder::unrecorded([&] { primal.before = primal.real.clone(); });
  }
  return Answer::Record;
}

bool FunctionTrace::is_given(const at::Tensor& tensor) const {
  return !TracingTensor::get(tensor) ||
         std::any_of(primals_.begin(), primals_.end(), [&](const Primal& primal) { return primal.stand_in.is_same(tensor); });
}

at::Tensor FunctionTrace::lift(const at::Tensor& outside) {
  if (!is_plain(outside)) return {};
  if (!is_forward_) return known_by_its_place(outside);
  if (outside.requires_grad() && !outside.is_leaf()) {
    recorder_.refuse("it reads a tensor from outside that has a history, and will be another in the next call. Give it as an argument");
    return {};
  }
  const bool is_written = std::any_of(primals_.begin(), primals_.end(),
                                      [&](const Primal& primal) { return primal.before.defined() && shares_memory(primal.real, outside); });
  if (is_written) return {};
  Primal primal;
  primal.value = recorder_.new_value(outside);
  primal.real = outside.requires_grad() ? without_history(outside) : outside;
  primal.stand_in = recorder_.stand_in(primal.real, primal.value);
  if (outside.requires_grad()) {
    primal.outside = torch::autograd::impl::gradient_edge(outside);
    primal.inner = primal.gradient = input_edge(outside, primal.outside);
  }
  primal.version = version_of(outside);
  primal.is_leaf = outside.is_leaf();
  primals_.push_back(std::move(primal));
  lifted_.push_back(outside);
  return primals_.back().stand_in;
}

// Autograd saves a tensor from outside, and returns a new tensor object for it: that is recognised by its memory. Any other tensor that a
// formula finds outside may be another one in the next call.
at::Tensor FunctionTrace::known_by_its_place(const at::Tensor& outside) const {
  for (const Primal& primal : primals_) {
    if (is_same_place(primal.real, outside)) return primal.stand_in;
  }
  for (const CopiedNumbers& copied : copied_numbers_) {
    if (is_same_place(copied.tensor, outside)) return copied.stand_in;
  }
  return {};
}

}  // namespace hindcast::capture
