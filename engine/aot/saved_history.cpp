#include "engine/aot/saved_history.h"

#include "base/format.h"
#include "capture/function/input_node.h"
#include "capture/function/random_state.h"
#include "engine/aot/aot_node.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace hindcast::engine {

using capture::ValueId;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

at::Tensor behind_a_node(const at::Tensor& tensor) {
  at::Tensor own = tensor.tensor_data();
  torch::autograd::impl::set_gradient_edge(own, capture::input_edge(own, torch::autograd::impl::gradient_edge(tensor)));
  return own;
}

namespace {

// Values of the forward once more, by autograd, from primals behind nodes of their own.
class OnceMore {
 public:
  explicit OnceMore(const HistoryOf& of) : of_(of), primals_(of.whole->joint.primals) {
    for (const auto& [primal, saved] : of.primals) {
      at::Tensor tensor = saved.unpack();
      primals_[primal] = of.function->needs_gradient(primal) ? behind_a_node(tensor) : std::move(tensor);
      known_.insert_or_assign(of.whole->joint.primal_values()[primal].index, primals_[primal]);
    }
  }
  /// What is not computed: SecondOrder::constants.
  void give(ValueId value, const at::Tensor& tensor) { known_.insert_or_assign(value.index, tensor); }
  /// In place of those that were written to since: enough to see which values have a history.
  void give_any_for_missing_primals() {
    capture::Env env;
    const auto& graph = *of_.whole->joint.graph;
    if (!capture::Evaluator(*graph.symbols).evaluate(of_.bindings, env)) return;
    for (const auto& primal : of_.whole->second_order.primals) {
      const ValueId id = of_.whole->joint.primal_values()[primal.number];
      if (known_.contains(id.index)) continue;
      const capture::Value& value = graph.values[id.index];
      std::vector<int64_t> sizes;
      for (const capture::ExprId size : value.sizes) sizes.push_back(env.integer(size));
      at::Tensor any = at::zeros(sizes, at::TensorOptions(value.device).dtype(value.dtype));
      if (of_.function->needs_gradient(primal.number)) any = behind_a_node(any);
      known_.emplace(id.index, std::move(any));
    }
  }
  void compute(const std::vector<ValueId>& values) { of_.whole->joint.graph->compute(values, known_, of_.bindings); }
  const at::Tensor& operator[](ValueId value) const { return known_.at(value.index); }
  const at::Tensor& primal(uint32_t number) const { return primals_[number]; }

 private:
  const HistoryOf& of_;
  std::vector<at::Tensor> primals_;
  std::unordered_map<uint32_t, at::Tensor> known_;
};

std::vector<ValueId> values_of(const Halves& whole, const std::vector<uint32_t>& saved) {
  std::vector<ValueId> values;
  for (const uint32_t i : saved) values.push_back(whole.saved_values[i]);
  return values;
}

// An operator may say that a result has no gradient, as a batch norm does of its statistics. Autograd knows.
std::vector<uint32_t> find_differentiable(const HistoryOf& of, const std::vector<at::Tensor>& saved) {
  const SecondOrder& order = of.whole->second_order;
  if (of.function->has_formulas()) return order.saved;  // nobody knows: the formula may need any of them
  std::vector<at::Tensor> primals;
  for (const auto& [primal, tensor] : of.primals) primals.push_back(tensor.unpack());
  const auto random = order.draws ? capture::RandomState::of(primals) : capture::RandomState();
  const at::AutoGradMode grad(true);
  OnceMore once_more(of);
  for (const uint32_t i : order.constants) once_more.give(of.whole->saved_values[i], saved[i]);
  once_more.give_any_for_missing_primals();
  once_more.compute(values_of(*of.whole, order.saved));
  random.restore();
  std::vector<uint32_t> found;
  for (const uint32_t i : order.saved) {
    if (once_more[of.whole->saved_values[i]].requires_grad()) found.push_back(i);
  }
  return found;
}

class SavedHistory final : public torch::autograd::Node {
 public:
  SavedHistory(HistoryOf of, const std::vector<uint32_t>& which, const std::vector<at::Tensor>& saved)
      : of_(std::move(of)), values_(values_of(*of_.whole, which)) {
    set_next_edges(std::move(of_.edges));
    for (const uint32_t i : which) add_input_metadata(saved[i]);
    const SecondOrder& order = of_.whole->second_order;
    const auto keep = [&](uint32_t i) { constants_.emplace_back(of_.whole->saved_values[i], SavedVariable(saved[i], false)); };
    for (const uint32_t i : order.constants) keep(i);
    for (const uint32_t i : order.saved) {
      if (std::find(which.begin(), which.end(), i) == which.end()) keep(i);
    }
  }

  std::string name() const override { return "AotSavedBackward"; }

  variable_list apply(variable_list&& tangents) override {
    check();
    const bool create_graph = at::GradMode::is_enabled();
    const OnStockEngine stock;
    const at::AutoGradMode grad(true);
    OnceMore once_more(of_);
    for (const auto& [value, constant] : constants_) once_more.give(value, constant.unpack());
    once_more.compute(values_);
    variable_list roots, into, wanted;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!tangents[i].defined() || !once_more[values_[i]].requires_grad()) continue;
      roots.push_back(once_more[values_[i]]);
      into.push_back(tangents[i]);
    }
    for (const uint32_t primal : of_.function->with_gradients()) {
      if (once_more.primal(primal).defined()) wanted.push_back(once_more.primal(primal));
    }
    variable_list found(wanted.size());
    if (!roots.empty() && !wanted.empty())
      found = torch::autograd::grad(roots, wanted, into, /*retain_graph=*/create_graph, create_graph, /*allow_unused=*/true);
    variable_list gradients;
    size_t next = 0;
    for (const uint32_t primal : of_.function->with_gradients()) {
      gradients.push_back(once_more.primal(primal).defined() ? std::move(found[next++]) : at::Tensor());
    }
    return gradients;
  }

  void release_variables() override {
    constants_.clear();
    for (auto& [primal, saved] : of_.primals) saved.reset_data();
    is_released_ = true;
  }

 private:
  void check() const {
    if (is_released_) refuse_second_time();
    if (!of_.why_not.empty()) throw std::runtime_error(of_.why_not);
    const char* why = nullptr;
    const SecondOrder& order = of_.whole->second_order;
    if (of_.function->has_formulas()) why = "it calls custom Functions";
    if (order.draws) why = "it draws random numbers";
    const auto is_written = [&](const SecondOrder::Primal& primal) { return of_.function->is_written(primal.number); };
    if (std::any_of(order.primals.begin(), order.primals.end(), is_written)) why = "it writes to its arguments";
    if (why == nullptr) return;
    throw std::runtime_error(
        base::format("hindcast::aot_function: second derivatives through what the function computes on its way are not to be had: {}. Call "
                     "the function itself where you need them",
                     why));
  }

  HistoryOf of_;
  const std::vector<ValueId> values_;
  std::vector<std::pair<ValueId, SavedVariable>> constants_;
  bool is_released_ = false;
};

}  // namespace

void give_history(std::vector<at::Tensor>& saved, HistoryOf of) {
  if (of.whole->second_order.saved.empty()) return;
  const std::vector<uint32_t>& which = of.whole->differentiable.get([&] { return find_differentiable(of, saved); });
  if (which.empty()) return;
  const auto node = capture::own_node(new SavedHistory(std::move(of), which, saved));
  for (uint32_t output = 0; output < which.size(); ++output) {
    at::Tensor& tensor = saved[which[output]];
    tensor = tensor.tensor_data();
    torch::autograd::impl::set_gradient_edge(tensor, {node, output});
  }
}

}  // namespace hindcast::engine
