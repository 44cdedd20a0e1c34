#include "engine/aot/specialisation.h"

#include "capture/backward/trace.h"
#include "capture/function/dependent_inputs.h"
#include "capture/recorder/tracing_tensor.h"
#include "engine/aot/family.h"
#include "engine/cache/symbol_binder.h"

#include <algorithm>

namespace hindcast::engine {

using capture::Facts;
using capture::Returned;

namespace {

Facts facts_of(const std::vector<at::Tensor>& tensors) {
  Facts facts;
  for (const at::Tensor& tensor : tensors) capture::append_tensor_facts(tensor, facts);
  return facts;
}

bool are_same(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
}

std::vector<int64_t> offsets_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> offsets;
  for (const at::Tensor& tensor : tensors) offsets.push_back(tensor.defined() ? tensor.storage_offset() : 0);
  return offsets;
}

}  // namespace

Specialisation::Specialisation(InputFacts facts, DynamicRow dynamic, const capture::FunctionTrace& trace, detail::FunctionOutput output,
                               const detail::HasOwner& has_owner)
    : TracedFunction(trace, std::move(output)),
      row_(std::move(facts.row)),
      first_(std::move(facts.first)),
      dynamic_(std::move(dynamic)),
      symbols_(trace.symbols()),
      evaluator_(*symbols_),
      returned_(trace.returned()),
      lifted_row_(facts_of(trace.lifted())),
      is_exact_(symbols_->had_unguarded_read()) {
  for (const at::Tensor& tensor : trace.lifted()) lifted_.emplace_back(tensor, has_owner && has_owner(tensor));
  if (trace.may_read_offsets()) {
    offsets_ = offsets_of(trace.real_inputs());
    const std::vector<int64_t> outside = offsets_of(trace.lifted());
    offsets_.insert(offsets_.end(), outside.begin(), outside.end());
  }
}

bool Specialisation::needs_callers_graph(const std::vector<at::Tensor>& inputs) const {
  const auto requires_grad = [](const at::Tensor& input) { return input.defined() && input.requires_grad(); };
  if (takes_gradients_of().empty() || std::none_of(inputs.begin(), inputs.end(), requires_grad)) return false;
  const auto is_also_outside = [&](uint32_t one) {
    return is_input(one) && std::any_of(lifted_.begin(), lifted_.end(), [&](const OutsideTensor& other) { return other.is(inputs[one]); });
  };
  if (std::any_of(takes_gradients_of().begin(), takes_gradients_of().end(), is_also_outside)) return true;
  const auto edge_of = [&](const at::Tensor& primal) {
    return requires_grad(primal) ? torch::autograd::impl::gradient_edge(primal) : torch::autograd::Edge();
  };
  std::vector<torch::autograd::Edge> edges;
  for (const at::Tensor& input : inputs) edges.push_back(edge_of(input));
  edges.resize(inputs.size() + lifted_.size());  // outside tensors are leaves, which have no history
  for (const uint32_t one : takes_gradients_of()) {
    if (!is_input(one)) edges[one] = edge_of(lifted_[one - inputs.size()].get());
  }
  return capture::needs_callers_graph(edges, takes_gradients_of());
}

Specialisation::Specialisation(InputFacts facts) : row_(std::move(facts.row)), first_(std::move(facts.first)), state_(State::Eager) {}

Specialisation::Specialisation(const Specialisation& other, std::shared_ptr<capture::SymbolTable> symbols, std::vector<Returned> returned,
                               bool infers)
    : TracedFunction(other),
      row_(other.row_),
      first_(other.first_),
      dynamic_(other.dynamic_),
      symbols_(std::move(symbols)),
      evaluator_(*symbols_),
      returned_(std::move(returned)),
      lifted_(other.lifted_),
      lifted_row_(other.lifted_row_),
      offsets_(other.offsets_),
      family_(other.family_),
      proved_(std::make_unique<ProvedSizes>(infers)) {}

std::optional<std::vector<int64_t>> Specialisation::values_of_symbols(const Facts& row) const {
  capture::Bindings bindings;
  if (!bind_symbols(row, bindings)) return std::nullopt;
  return std::move(bindings.ints);
}

bool Specialisation::bind_symbols(const Facts& row, capture::Bindings& bindings) const {
  SymbolBinder binder(bindings, dynamic_.int_hints.size(), /*floats=*/0);
  return binder.bind(row, row_, dynamic_.symbols);
}

bool Specialisation::have_same_offsets(const std::vector<at::Tensor>& inputs) const {
  if (offsets_.empty()) return true;
  std::vector<int64_t> now = offsets_of(inputs);
  const std::vector<int64_t> outside = offsets_of(find_lifted());
  now.insert(now.end(), outside.begin(), outside.end());
  return now == offsets_;
}

bool Specialisation::matches(const Facts& row, capture::Bindings& bindings) const {
  if (dynamic_.symbols.empty() || is_exact()) {
    if (row != row_) return false;
    bindings.ints = dynamic_.int_hints;
  } else {
    if (!bind_symbols(row, bindings)) return false;
    if (proved_ && !proved_->has(bindings.ints)) return false;
    capture::Env env;
    if (!evaluator_.evaluate(bindings, env) || !evaluator_.relations_hold(env)) return false;
    if (const auto known = programs_.next(); known && !known->forward->holds_for(bindings)) return false;
  }
  if (lifted_.empty()) return true;
  Facts now;
  for (const OutsideTensor& tensor : lifted_) capture::append_tensor_facts(tensor.get(), now);
  return now == lifted_row_;
}

std::vector<at::Tensor> Specialisation::find_lifted() const {
  std::vector<at::Tensor> tensors;
  tensors.reserve(lifted_.size());
  for (const OutsideTensor& tensor : lifted_) tensors.push_back(tensor.get());
  return tensors;
}

void Specialisation::give_up_at_all_sizes() {
  give_up();
  if (const auto known = family()) known->give_up();
}

void Specialisation::look_for_escapes(const capture::Recorder::WeakStandIns& made) {
  bool is_held = false;
  for (const auto& stand_in : made) {
    const auto held = stand_in.lock();
    if (!held) continue;
    is_held = true;
    if (auto* const traced = capture::TracingTensor::get(at::Tensor(held))) traced->become_plain();
  }
  if (!is_held) return;
  if (const auto known = family()) return known->on_escape(*this);
  give_up();
}

bool Specialisation::is_like(const capture::FunctionTrace& trace) const {
  const capture::SymbolTable& symbols = *trace.symbols();
  if (symbols.unbacked_symbols() != symbols_->unbacked_symbols()) return false;
  capture::Env env;
  const bool has_its_sizes =
      !has_data_sizes() || (evaluator_.evaluate(bindings_at_capture(symbols), env) && evaluator_.relations_hold(env));
  return has_its_sizes && TracedFunction::is_like(trace) && are_same(find_lifted(), trace.lifted());
}

bool Specialisation::has_same_outside_tensors(const Specialisation& other) const {
  return are_same(find_lifted(), other.find_lifted()) && has_same_shape(other);
}

capture::FunctionTrace::SizesOf Specialisation::sizes_of(const capture::Bindings& now) const {
  return sizes_of_inputs(row_, first_, dynamic_at(now));
}

DynamicRow Specialisation::dynamic_at(const capture::Bindings& now) const {
  DynamicRow dynamic = dynamic_;
  dynamic.int_hints = now.ints;
  return dynamic;
}

at::Tensor Specialisation::view(at::Tensor of, const std::vector<capture::ViewStep>& views, const capture::Bindings& bindings) const {
  capture::Env env;
  evaluator_.evaluate(bindings, env);
  return capture::Graph::view(std::move(of), views, env);
}

}  // namespace hindcast::engine
