// What a traced function returns, and what it has written.

#include "capture/function/function_trace.h"

#include "capture/function/grad_mode_formulas.h"
#include "capture/function/history.h"
#include "capture/function/places.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace hindcast::capture {

using torch::autograd::Edge;
using torch::autograd::Node;

namespace {

// In later calls the view is taken again of `whole`, without the Function.
void refuse_view_by_a_custom_function(const at::Tensor& view, const at::Tensor& whole) {
  if (has_custom_function_since(view, whole))
    throw NotTraced("it returns a view that a custom Function has made of an argument or of another result");
}

// Whether autograd knows `tensor` as a view of `whole`, so that a write to it is seen there.
bool is_tracked_view(const at::Tensor& tensor, const at::Tensor& whole) {
  using torch::autograd::CreationMeta;
  if (!tensor.is_view() || !tensor._base().is_same(whole)) return false;
  const CreationMeta made = torch::autograd::impl::get_view_autograd_meta(tensor)->get_creation_meta();
  return made != CreationMeta::NO_GRAD_MODE && made != CreationMeta::INFERENCE_MODE;
}

// Whether a write through one invalidates what was saved of the other. For `.data` it does not.
bool have_one_version(const at::Tensor& a, const at::Tensor& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));  // the counter
  const auto &one = a.unsafeGetTensorImpl()->version_counter(), &other = b.unsafeGetTensorImpl()->version_counter();
  return std::memcmp(&one, &other, sizeof(one)) == 0;
}

// Autograd does not know what a detached view is a view of: returns the one among `tensors` that shares its memory and its version.
at::Tensor detached_from(const std::vector<at::Tensor>& tensors, const at::Tensor& view) {
  for (const at::Tensor& tensor : tensors) {
    const TracingTensor* traced = TracingTensor::get(tensor);
    if (traced && traced->base == TracingTensor::get(view)->base && traced->views.empty() && have_one_version(tensor, view)) return tensor;
  }
  return view;
}

// Whether the base was written after chunk(), unbind() or the like had made the view: asking for its history is an error then.
bool has_lost_history(const at::Tensor& view) {
  using torch::autograd::CreationMeta;
  auto* const meta = torch::autograd::impl::get_view_autograd_meta(view);
  return meta != nullptr && meta->has_bw_view() && meta->get_creation_meta() != CreationMeta::DEFAULT &&
         meta->get_attr_version() != version_of(view) && (meta->grad_fn_ != nullptr || meta->get_backward_view().base_.requires_grad());
}

}  // namespace

void FunctionTrace::read_results(const std::vector<at::Tensor>& outputs) {
  read_returned(outputs);
  read_writes();
  for (const auto& [value, number] : asked_) {
    numbers_.push_back({static_cast<uint32_t>(results_.size()), number});
    results_.push_back({value});
    result_stand_ins_.emplace_back();
  }
  cut_edges(outputs);
}

uint32_t FunctionTrace::add_result(const at::Tensor& stand_in) {
  for (uint32_t i = 0; i < results_.size(); ++i) {
    if (result_stand_ins_[i].is_same(stand_in)) return i;
  }
  results_.push_back({recorder_.value_of(stand_in), stand_in.requires_grad()});
  result_stand_ins_.push_back(stand_in);
  return static_cast<uint32_t>(results_.size() - 1);
}

Returned FunctionTrace::from_primal(uint32_t primal, const at::Tensor& output) const {
  if (is_made_of_numbers(primal))
    throw NotTraced(
        "it returns a tensor that torch.tensor() or the like has made, and that requires grad or shares memory with another one");
  Returned returned{Returned::From::Primal, primal};
  const TracingTensor* traced = TracingTensor::get(output);
  if (!traced || primals_[primal].stand_in.is_same(output)) {
    returned.is_itself = true;
  } else {
    returned.views = traced->views;
  }
  const at::Tensor& whole = primal < input_count() ? primals_[primal].stand_in : lifted_[primal - input_count()];
  // Results of unsafe_split() have version counters of their own, also when they are taken again.
  const bool are_views = std::all_of(returned.views.begin(), returned.views.end(),
                                     [](const ViewStep& step) { return step.op.schema().returns().at(0).alias_info() != nullptr; });
  if (!returned.is_itself && are_views && !have_one_version(output, whole))
    throw NotTraced("it returns .data of an argument, or a view of that");
  if (!returned.is_itself && output.is_leaf() && output.requires_grad())
    throw NotTraced("it returns a view of an argument that requires grad by itself");
  const bool is_written = traced && traced->base->value != primals_[primal].value;
  if (is_written && output.requires_grad() && !returned.is_itself && !(output.is_view() && output._base().is_same(whole))) {
    throw NotTraced("it returns a tensor that shares memory with an argument, and has a history of its own");
  }
  if (!returned.is_itself) refuse_view_by_a_custom_function(output, whole);
  returned.with_autograd = output.requires_grad() || is_tracked_view(output, whole);
  return returned;
}

void FunctionTrace::read_returned(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> own;  // by output: what the function made itself
  for (const at::Tensor& output : outputs) {
    const auto first = std::find_if(outputs.begin(), outputs.end(), [&](const at::Tensor& other) { return other.is_same(output); });
    returned_.emplace_back();
    own.emplace_back();
    if (!output.defined()) continue;
    if (has_lost_history(output))
      throw NotTraced("it writes to a tensor after unbind(), chunk() or the like, and returns one of the views");
    if (output.is_inference() && !c10::InferenceMode::is_enabled()) throw NotTraced("it returns a tensor that it made in inference mode");
    const TracingTensor* traced = TracingTensor::get(recorder_.lifted(output));
    if (!traced) throw NotTraced("it returns a number as a tensor");
    for (const ViewStep& view : traced->views) {
      for (uint32_t i = 0; i < view.args.size(); ++i) {
        if (i != view.self_arg && !view.args[i].values.empty()) throw NotTraced("it returns a view that takes two tensors to make");
      }
    }
    if (const auto primal = primal_of(traced->base.get()); primal && !copy_if_made_of_numbers(*primal)) {
      returned_.back() = from_primal(*primal, output);
    } else {
      own.back() = output;
    }
    if (&*first != &output) returned_.back().same_as = static_cast<uint32_t>(first - outputs.begin());
  }
  std::unordered_map<const Base*, at::Tensor> wholes;
  for (size_t i = 0; i < own.size(); ++i) {
    if (!own[i].defined()) continue;
    const TracingTensor& traced = *traced_of(own[i]);
    const bool is_shared = std::any_of(own.begin(), own.end(), [&](const at::Tensor& other) {
      return other.defined() && !other.is_same(own[i]) && traced_of(other)->base == traced.base;
    });
    Returned& returned = returned_[i];
    returned.from = Returned::From::Result;
    returned.with_autograd = own[i].requires_grad();
    if (!is_shared) {
      returned.index = add_result(own[i]);
      continue;
    }
    // For tensors that share memory, the program returns the tensor that all of them are views of.
    const at::Tensor whole = traced.views.empty() ? own[i] : own[i].is_view() ? at::Tensor(own[i]._base()) : detached_from(own, own[i]);
    const TracingTensor* base = traced_of(whole);
    if (wholes.try_emplace(traced.base.get(), whole).first->second.unsafeGetTensorImpl() != whole.unsafeGetTensorImpl())
      throw NotTraced("it returns tensors that share memory, and the one is no view of the other (.data)");
    if (!base || base->base != traced.base || !base->views.empty())
      throw NotTraced("it returns tensors that share memory which none of them has all of");
    refuse_view_by_a_custom_function(own[i], whole);
    returned.index = add_result(whole);
    returned.views = traced.views;
    returned.with_autograd |= is_tracked_view(own[i], whole);
  }
}

void FunctionTrace::read_writes() {
  for (uint32_t i = 0; i < primals_.size(); ++i) {
    Primal& primal = primals_[i];
    const TracingTensor* traced = TracingTensor::get(primal.stand_in);
    if (traced && !traced->views.empty()) throw NotTraced("it changes the geometry of an input in place");
    const bool is_input = traced && i < input_count();
    if (is_input && primal.stand_in.is_leaf() && (primal.stand_in.requires_grad() != primal.required_grad || !primal.is_leaf))
      throw NotTraced("it detaches an argument in place, or sets its requires_grad");
    if (!traced || traced->base->value == primal.value) continue;
    const bool is_lifted = i >= input_count();
    const at::Tensor& seen = is_lifted ? lifted_[i - input_count()] : primal.stand_in;
    const bool has_new_history = has_another_history(seen, primal.inner, primal.outside);
    if (has_new_history && !at::GradMode::is_enabled()) throw NotTraced("it turns grad mode on, and writes to an argument");
    if (is_lifted && has_new_history) throw NotTraced("it writes something that needs a gradient to a tensor from outside");
    results_.push_back({recorder_.value_of(primal.stand_in), has_new_history, i, version_of(seen) - primal.version});
    result_stand_ins_.push_back(primal.stand_in);
  }
}

// Edges that leave the function, to where a tensor from outside was made, end at an input node of ours: otherwise the engine would continue
// there, and count that tensor's gradient twice.
void FunctionTrace::cut_edges(const std::vector<at::Tensor>& outputs) {
  std::unordered_set<torch::autograd::Node*> reached;
  const auto replace = [this](const Edge& edge) -> std::optional<Edge> {
    for (size_t i = input_count(); i < primals_.size(); ++i) {
      if (primals_[i].outside.is_valid() && primals_[i].outside == edge) return primals_[i].gradient;
    }
    return std::nullopt;
  };
  if (const auto reason = replace_edges(result_stand_ins_, replace, &reached)) throw NotTraced(*reason);
  for (const torch::autograd::Node* node : reached) {
    has_formulas_ = has_formulas_ || is_custom_function(*node);
    has_users_backward_ = has_users_backward_ || is_users_function(*node);
    asks_for_grad_mode_ = asks_for_grad_mode_ || capture::asks_for_grad_mode(*node);
  }
  std::vector<at::Tensor> views;  // these are taken again of the arguments, without hooks
  std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(views),
               [](const at::Tensor& output) { return output.defined() && !output.is_leaf(); });
  if (const auto reason = replace_edges(views, replace)) throw NotTraced(*reason);
  for (Primal& primal : primals_) {
    if (!primal.gradient.is_valid() || reached.contains(primal.gradient.function.get())) continue;
    if (has_hooks(*primal.gradient.function)) throw NotTraced("it registers a hook on an argument");
    // No result depends on it: without hindcast its node would be in no graph, and its hooks would not be called.
    primal.gradient = {};
  }
}

at::Tensor FunctionTrace::real_result(size_t result) const {
  const at::Tensor& stand_in = result_stand_ins_[result];
  const TracingTensor* traced = traced_of(stand_in);
  if (!traced) return {};  // a number
  at::Tensor real = without_history(traced->real);
  share_version(real, stand_in);  // LibTorch checks what it has saved of the stand-in against the caller's writes
  return real;
}

FunctionTrace::Histories FunctionTrace::histories() const {
  std::unordered_map<const Node*, uint32_t> begins;
  for (uint32_t i = 0; i < primals_.size(); ++i) begins.emplace(primals_[i].gradient.function.get(), i);
  struct Group {
    std::vector<uint32_t> results;
    uint64_t last = 0;  // the number of the last node
  };
  std::map<std::set<uint32_t>, Group> groups;  // by their primals
  uint32_t number = 0;
  Histories histories;
  std::set<std::pair<const Node*, uint32_t>> of_results;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].is_differentiable) continue;
    const Edge edge = torch::autograd::impl::gradient_edge(result_stand_ins_[i]);
    if (!begins.contains(edge.function.get())) of_results.emplace(edge.function.get(), edge.input_nr);
  }
  std::unordered_set<const Node*> nodes;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].is_differentiable) continue;
    std::set<uint32_t> reached;
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> open = {torch::autograd::impl::gradient_edge(result_stand_ins_[i]).function.get()};
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      if (node == nullptr || !seen.insert(node).second) continue;
      if (const auto primal = begins.find(node); primal != begins.end()) {
        reached.insert(primal->second);
        continue;
      }
      nodes.insert(node);
      for (const Edge& edge : node->next_edges()) {
        open.push_back(edge.function.get());
        histories.one_leads_to_another |= of_results.contains({edge.function.get(), edge.input_nr});
      }
    }
    Group& group = groups[std::move(reached)];
    group.results.push_back(number++);
    group.last = std::max(group.last, torch::autograd::impl::gradient_edge(result_stand_ins_[i]).function->sequence_nr());
  }
  // LibTorch's engine begins with the node that was made last.
  std::vector<std::pair<uint64_t, HistoryGroup>> in_order;
  for (auto& [primals, group] : groups) in_order.push_back({group.last, {{primals.begin(), primals.end()}, std::move(group.results)}});
  std::stable_sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  histories.nodes = nodes.size();
  for (auto& [last, group] : in_order) histories.groups.push_back(std::move(group));
  return histories;
}

}  // namespace hindcast::capture
