// A traced function that is not a program: it continues unrecorded, on stand-ins that have become plain tensors.

#include "capture/function/function_trace.h"
#include "capture/function/history.h"
#include "capture/function/input_node.h"
#include "capture/function/places.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

namespace hindcast::capture {

using torch::autograd::Edge;
using torch::autograd::variable_list;

namespace {

// Moves hooks that the function has registered on a stand-in (on `former`, the node where its gradient arrives) to the argument.
void move_hooks(const at::Tensor& stand_in, torch::autograd::Node& former, const at::Tensor& input, torch::autograd::Node& node) {
  using Hooks = std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>;
  const auto hooks = std::make_shared<Hooks>(std::move(former.tensor_pre_hooks()));  // for a leaf: the tensor's own
  former.tensor_pre_hooks().clear();
  if (stand_in.is_leaf()) torch::autograd::impl::clear_hooks(stand_in);
  if (!hooks->empty()) {
    input.register_hook([hooks](const at::Tensor& gradient) {
      variable_list gradients = {gradient};
      for (const auto& hook : *hooks) gradients = (*hook)(gradients);
      return gradients.at(0);
    });
  }
  for (auto& hook : former.pre_hooks()) node.add_pre_hook(std::move(hook));
  former.pre_hooks().clear();
  for (auto& hook : former.post_hooks()) node.add_post_hook(std::move(hook));
  former.post_hooks().clear();
  if (!former.retains_grad_hooks().empty()) input.retain_grad();
  if (!stand_in.is_leaf()) return;
  if (auto& hook = torch::autograd::impl::post_acc_grad_hooks(stand_in))
    torch::autograd::impl::set_post_acc_grad_hooks(input, std::move(hook));
}

class HasNoSecondDerivative final : public torch::autograd::FunctionPreHook {
  variable_list operator()(const variable_list&) override {
    throw std::runtime_error(
        "hindcast::aot_function: this call has no second derivatives: it uses saved-tensor hooks, as a checkpoint does. Later calls "
        "run the function eagerly, and have them");
  }
};

// A tensor that saved-tensor hooks have packed keeps the AccumulateGrad node of the tensor that it was made of, here of a stand-in, and has
// it as its own when it is unpacked. A second derivative would end there, and what it lacks would be silently wrong: so it has to be an
// error. The edge makes the engine visit the node.
void refuse_gradients(torch::autograd::Node& accumulate, const Edge& of_argument) {
  accumulate.next_edges().push_back(of_argument);
  accumulate.add_pre_hook(std::make_unique<HasNoSecondDerivative>());
}

// A view of `whole`, taken again of `of`. Undefined if a write to it need not be seen there, or may not happen.
at::Tensor taken_again(const at::Tensor& view, const at::Tensor& whole, const at::Tensor& of) {
  using torch::autograd::CreationMeta;
  if (!view.is_view() || !view._base().is_same(whole) || !torch::autograd::impl::hooks(view).empty()) return {};
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta->requires_grad_ || !meta->has_bw_view()) return {};
  // A view of a leaf taken in no_grad or inference mode is a leaf, and requires grad exactly if that leaf is no view itself.
  const CreationMeta made = meta->get_creation_meta();
  const bool is_without_history = (made == CreationMeta::NO_GRAD_MODE || made == CreationMeta::INFERENCE_MODE) && view.is_leaf();
  if (!is_without_history && made != CreationMeta::DEFAULT) return {};
  const at::AutoGradMode grad(!is_without_history);
  const auto& info = meta->get_backward_view();
  if (info.has_view_fn()) return info.view_fn()(of);
  return of.as_strided(view.sizes(), view.strides(), view.storage_offset());
}

}  // namespace

// The nodes that autograd made on the stand-ins are the history of the results. Arguments, and views of them, are returned as the caller's
// own.
void FunctionTrace::finish_eagerly(std::vector<at::Tensor> outputs, const std::vector<at::Tensor>& inputs) {
  recorder_.release();
  outputs_ = outputs;
  for (size_t i = 0; i < inputs.size(); ++i) set_requires_grad(primals_[i], inputs[i]);
  begin_at_arguments();
  outputs_.clear();
  move_all_hooks();
  const at::AutoGradMode grad(true);
  // Compared before any argument is changed: a tensor that is passed twice has two stand-ins, and the function has changed one of them.
  std::vector<bool> is_at_another_place;
  for (size_t i = 0; i < inputs.size(); ++i)
    is_at_another_place.push_back(inputs[i].defined() && !is_same_place(primals_[i].stand_in, inputs[i]));
  outputs_ = outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined()) give_back(primals_[i], inputs[i], is_at_another_place[i]);
  }
  outputs_.clear();
  lead_kept_stand_ins_on();
  for (size_t i = 0; i < inputs.size() && had_saved_tensor_hooks(); ++i) {  // tensors from outside have input nodes, which lead on
    const Primal& primal = primals_[i];
    if (primal.is_leaf && primal.inner.is_valid()) refuse_gradients(*primal.inner.function, primal.outside);
  }
  inputs_ = nullptr;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto before = outputs.begin() + static_cast<std::ptrdiff_t>(o);
    const auto same = std::find_if(outputs.begin(), before, [&](const at::Tensor& other) { return other.is_same(outputs[o]); });
    outputs_.push_back(same != before ? outputs_[static_cast<size_t>(same - outputs.begin())]
                                      : of_arguments(outputs[o], inputs, is_at_another_place));
  }
}

// A generator or a lambda that the function returns may hold the stand-in of a leaf and use it later. The stand-in then owns the leaf's
// AccumulateGrad node, which may have no other owner.
void FunctionTrace::lead_kept_stand_ins_on() const {
  for (const Primal& primal : primals_) {
    if (primal.is_leaf && primal.outside.is_valid() && primal.stand_in.defined() && primal.stand_in.is_leaf())
      torch::autograd::impl::set_gradient_edge(primal.stand_in, primal.outside);
  }
}

void FunctionTrace::move_all_hooks() const {
  for (size_t i = 0; i < inputs_->size(); ++i) {
    const Primal& primal = primals_[i];
    if (primal.inner.is_valid() && primal.outside.is_valid())
      move_hooks(primal.stand_in, *primal.inner.function, (*inputs_)[i], *primal.outside.function);
  }
}

// Applies to the argument what the function did to the stand-in. The contents are in the argument already.
void FunctionTrace::give_back(const Primal& primal, at::Tensor input, bool is_at_another_place) const {
  const at::Tensor& stand_in = primal.stand_in;
  const bool is_detached = !primal.is_leaf && stand_in.is_leaf();  // detach_()
  const bool is_written = !is_detached && has_another_history(stand_in, primal.inner, primal.outside);
  if (is_at_another_place) {  // set_(), resize_(), .data, a view in place
    input.set_data(stand_in.detach());
    if (is_written) torch::autograd::impl::set_gradient_edge(input, torch::autograd::impl::gradient_edge(stand_in));
  }
  if (is_detached) {
    input.detach_();
    if (!stand_in.requires_grad()) return;
    input.requires_grad_();
    if (const auto own = torch::autograd::impl::try_get_grad_accumulator(stand_in))
      replace_in_history(Edge(own, 0), torch::autograd::impl::gradient_edge(input));
  }
  if (!is_written || is_at_another_place) return;
  at::Tensor written;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    written = stand_in.clone();
  }
  torch::autograd::impl::set_gradient_edge(written, torch::autograd::impl::gradient_edge(stand_in));
  const uint32_t version = version_of(input);
  input.copy_(written);
  c10::VariableVersion(torch::autograd::impl::version_counter(input)).set_version(version);  // the version after the function's own write
}

// The argument, if the function returned its stand-in; a view of it, if the function returned a view of the stand-in. A view that was taken
// before the function changed the geometry of the argument, as t_() does, cannot be taken again.
at::Tensor FunctionTrace::of_arguments(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                       const std::vector<bool>& is_at_another_place) const {
  for (size_t i = 0; output.defined() && i < inputs.size(); ++i) {
    const at::Tensor& stand_in = primals_[i].stand_in;
    if (!stand_in.defined()) continue;
    if (output.is_same(stand_in)) return inputs[i];
    const bool was_detached = !primals_[i].is_leaf && stand_in.is_leaf();  // a view from before has a history
    if (is_at_another_place[i] || (was_detached && output.requires_grad())) continue;
    if (at::Tensor view = taken_again(output, stand_in, inputs[i]); view.defined()) return view;
  }
  return output;
}

// requires_grad_() on the stand-in of a leaf is applied to the leaf.
void FunctionTrace::set_requires_grad(Primal& primal, const at::Tensor& input) const {
  const at::Tensor& stand_in = primal.stand_in;
  if (!stand_in.defined() || !stand_in.is_leaf() || !primal.is_leaf || stand_in.requires_grad() == primal.required_grad) return;
  const bool requires_grad = stand_in.requires_grad();
  if (requires_grad) primal.inner = torch::autograd::impl::gradient_edge(stand_in);
  at::Tensor(input).requires_grad_(requires_grad);
  if (requires_grad) primal.outside = torch::autograd::impl::gradient_edge(input);
}

void FunctionTrace::released() {
  if (!is_forward_) return;
  c10::AutogradState::get_tls_state().set_view_replay_enabled(false);  // until the end of the RecorderScope
  take_views_by_geometry(recorder_.held());
  // Not while an engine runs in the function.
  if (torch::autograd::get_current_graph_task_id() == graph_task_) begin_at_arguments();
}

// LibTorch's engine also asks for memory, before it adds gradients.
bool FunctionTrace::may_read_memory() { return is_forward_ && torch::autograd::get_current_graph_task_id() == graph_task_; }

// Makes the history of a leaf's stand-in end at the leaf itself. Called again when the function returns: the op that ended the recording
// had its edges already.
void FunctionTrace::begin_at_arguments() {
  forget_symbols();
  for (size_t i = 0; i < input_count(); ++i) {
    Primal& primal = primals_[i];
    if (!primal.inner.is_valid() || !primal.is_leaf) continue;
    replace_in_history(primal.inner, primal.outside);
    // When the function assigned to .data, LibTorch may have dropped the stand-in's AccumulateGrad node and created another.
    const auto own = torch::autograd::impl::try_get_grad_accumulator(primal.stand_in);
    if (own && own != primal.outside.function) replace_in_history(Edge(own, 0), primal.outside);
    torch::autograd::impl::set_grad_accumulator(primal.stand_in, WeakNodePtr(primal.outside.function));
  }
}

// Bypasses the node that stands for the whole call: gradients arrive at nodes of our own, without hooks. These have edges to the arguments,
// so that a second derivative reaches them.
void FunctionTrace::bypass_call_node() {
  if (std::exchange(leads_on_, true)) return;
  whole_formulas_.take_out_of(ends_of_history());
  forget_symbols();
  connect_leaves_to_arguments();
}

// Gradients of leaves' stand-ins flow on to the leaves. Done only once: LibTorch's engine has counted the edges of a backward that is
// running, and such a backward may go through this history, from a tensor that the function has kept.
void FunctionTrace::connect_leaves_to_arguments() {
  if (std::exchange(connects_leaves_, true)) return;
  for (size_t i = 0; i < input_count(); ++i) {
    Primal& primal = primals_[i];
    if (!primal.inner.is_valid() || !primal.is_leaf) continue;
    const Edge border = input_edge(primal.stand_in, primal.outside);
    replace_in_history(primal.inner, border);
    if (primal.gradient.is_valid()) primal.gradient = border;
    torch::autograd::impl::set_gradient_edge(primal.stand_in, border);  // for saved tensors
  }
}

// From here on LibTorch's kernels run, which take no symbols.
void FunctionTrace::forget_symbols() const {
  if (graph_->symbols->int_symbols() == 0) return;
  const SymbolTable::Looking looking(*graph_->symbols);  // programs made from the graph do not depend on this
  capture::forget_symbols(ends_of_history());
}

std::vector<at::Tensor> FunctionTrace::ends_of_history() const {
  std::vector<at::Tensor> ends = recorder_.held();
  ends.insert(ends.end(), outputs_.begin(), outputs_.end());
  for (const at::Tensor& outside : lifted_) {
    if (outside.grad_fn() != nullptr) ends.push_back(outside);  // the function has written to it
  }
  for (const CopiedNumbers& copied : copied_numbers_) ends.push_back(copied.tensor);  // not stand-ins, but may have a history
  return ends;
}

void FunctionTrace::replace_in_history(const Edge& former, const Edge& other) const {
  redirect_edges(ends_of_history(), [&](const Edge& edge) { return edge == former ? std::optional(other) : std::nullopt; });
}

}  // namespace hindcast::capture
