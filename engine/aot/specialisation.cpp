#include "engine/aot/specialisation.h"

#include "capture/backward/trace.h"
#include "capture/function/dependent_inputs.h"
#include "engine/aot/family.h"
#include "engine/cache/symbol_binder.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

namespace hindcast::engine {

using capture::ExprId;
using capture::FactKind;
using capture::Facts;
using capture::kStaticFact;
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

// Whether a returned tensor is, or may share memory with, a tensor of the caller's or another returned one.
bool is_shared(const std::vector<Returned>& all, size_t i) {
  const Returned& one = all[i];
  if (one.from != Returned::From::Result) return one.from == Returned::From::Primal;
  if (one.same_as || !one.views.empty()) return true;
  return std::any_of(all.begin(), all.end(), [&](const Returned& other) {
    return &other != &one && other.from == Returned::From::Result && other.index == one.index;
  });
}

std::vector<size_t> shared_of_last(const std::vector<Returned>& all, size_t count) {
  std::vector<size_t> shared;
  for (size_t i = all.size() - count; i < all.size(); ++i) {
    if (is_shared(all, i)) shared.push_back(i);
  }
  return shared;
}

}  // namespace

InputFacts::InputFacts(const std::vector<at::Tensor>& inputs, const std::vector<bool>& is_static, bool with_kinds) {
  std::vector<capture::FactOrigin> origins;
  for (size_t i = 0; i < inputs.size(); ++i) {
    first.push_back(static_cast<uint32_t>(row.size()));
    capture::append_tensor_facts(inputs[i], row, with_kinds ? &origins : nullptr);
    // Guards on being a leaf tensor, since an in-place write to one that requires grad is an error. This bit of the meta word is unused.
    constexpr int64_t kLeaf = int64_t{1} << 61;
    if (inputs[i].defined() && inputs[i].requires_grad() && inputs[i].is_leaf()) row[first.back()] |= kLeaf;
    for (; kinds.size() < origins.size();) {
      const FactKind kind = origins[kinds.size()].kind;
      kinds.push_back(i < is_static.size() && is_static[i] && kind == FactKind::TensorSize ? FactKind::TensorStride : kind);
    }
  }
}

Specialisation::Specialisation(InputFacts facts, DynamicRow dynamic, const capture::FunctionTrace& trace, detail::FunctionOutput output,
                               const detail::HasOwner& has_owner)
    : row_(std::move(facts.row)),
      first_(std::move(facts.first)),
      dynamic_(std::move(dynamic)),
      symbols_(trace.symbols()),
      evaluator_(*symbols_),
      results_(trace.results()),
      returned_(trace.returned()),
      numbers_(trace.numbers()),
      lifted_row_(facts_of(trace.lifted())),
      takes_gradients_of_(trace.takes_gradients_of().begin(), trace.takes_gradients_of().end()),
      draws_(trace.draws_random_numbers()),
      has_formulas_(trace.has_formulas()),
      calls_users_operator_(trace.calls_users_operator()),
      shape_(std::move(output.shape)),
      shape_facts_(std::move(output.facts)),
      copied_(shared_of_last(returned_, output.owned)) {
  for (const at::Tensor& tensor : trace.lifted()) lifted_.emplace_back(tensor, has_owner && has_owner(tensor));
  for (uint32_t i = 0; i < trace.primal_count(); ++i) {
    needs_gradient_.push_back(trace.needs_gradient(i));
    // An outside leaf tensor that needs a gradient is usually a parameter, which its owner keeps alive.
    if (i >= trace.input_count() && trace.needs_gradient(i) && trace.is_leaf(i)) lasting_.push_back(i);
    if (trace.needs_gradient(i) && trace.is_leaf(i)) leaves_.push_back(i);
  }
  has_gradients_ = std::any_of(results_.begin(), results_.end(), [](const capture::Result& result) { return result.is_differentiable; });
  is_exact_ = symbols_->had_unguarded_read();
  has_data_sizes_ = symbols_->unbacked_symbols() != 0;
  capture::FunctionTrace::Histories histories = trace.histories();
  histories_ = std::move(histories.primals);
  has_one_node_ = histories.nodes == 1;
  if (trace.may_read_offsets()) {
    offsets_ = offsets_of(trace.real_inputs());
    const std::vector<int64_t> outside = offsets_of(trace.lifted());
    offsets_.insert(offsets_.end(), outside.begin(), outside.end());
  }
}

bool Specialisation::needs_callers_graph(const std::vector<at::Tensor>& inputs) const {
  const auto requires_grad = [](const at::Tensor& input) { return input.defined() && input.requires_grad(); };
  if (takes_gradients_of_.empty() || std::none_of(inputs.begin(), inputs.end(), requires_grad)) return false;
  const auto is_also_outside = [&](uint32_t one) {
    return is_input(one) && std::any_of(lifted_.begin(), lifted_.end(), [&](const OutsideTensor& other) { return other.is(inputs[one]); });
  };
  if (std::any_of(takes_gradients_of_.begin(), takes_gradients_of_.end(), is_also_outside)) return true;
  const auto edge_of = [&](const at::Tensor& primal) {
    return requires_grad(primal) ? torch::autograd::impl::gradient_edge(primal) : torch::autograd::Edge();
  };
  std::vector<torch::autograd::Edge> edges;
  for (const at::Tensor& input : inputs) edges.push_back(edge_of(input));
  edges.resize(inputs.size() + lifted_.size());  // outside tensors are leaves, which have no history
  for (const uint32_t one : takes_gradients_of_) {
    if (!is_input(one)) edges[one] = edge_of(lifted_[one - inputs.size()].get());
  }
  return capture::needs_callers_graph(edges, takes_gradients_of_);
}

bool Specialisation::may_have_one_node(const std::vector<at::Tensor>& primals) const {
  using torch::autograd::Node;
  if (histories_.size() < 2) return true;
  std::unordered_set<const Node*> all;
  uint64_t lowest = ~uint64_t(0);  // a node's successors have lower topological numbers
  for (const auto& history : histories_) {
    for (const uint32_t primal : history) {
      const Node* node = torch::autograd::impl::gradient_edge(primals[primal]).function.get();
      all.insert(node);
      lowest = std::min(lowest, node->topological_nr());
    }
  }
  return std::all_of(histories_.begin(), histories_.end(), [&](const std::vector<uint32_t>& history) {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> open;
    for (const uint32_t primal : history) open.push_back(torch::autograd::impl::gradient_edge(primals[primal]).function.get());
    size_t missing = all.size();
    while (!open.empty() && missing > 0) {
      const Node* node = open.back();
      open.pop_back();
      if (!seen.insert(node).second) continue;
      missing -= all.contains(node);
      for (const torch::autograd::Edge& edge : node->next_edges()) {
        if (edge.function && edge.function->topological_nr() >= lowest) open.push_back(edge.function.get());
      }
    }
    return missing == 0;
  });
}

Specialisation::Specialisation(InputFacts facts) : row_(std::move(facts.row)), first_(std::move(facts.first)), state_(State::Eager) {}

Specialisation::Specialisation(const Specialisation& other, std::shared_ptr<capture::SymbolTable> symbols, std::vector<Returned> returned,
                               bool infers)
    : row_(other.row_),
      first_(other.first_),
      dynamic_(other.dynamic_),
      symbols_(std::move(symbols)),
      evaluator_(*symbols_),
      results_(other.results_),
      returned_(std::move(returned)),
      numbers_(other.numbers_),
      lifted_(other.lifted_),
      lifted_row_(other.lifted_row_),
      offsets_(other.offsets_),
      needs_gradient_(other.needs_gradient_),
      lasting_(other.lasting_),
      leaves_(other.leaves_),
      takes_gradients_of_(other.takes_gradients_of_),
      histories_(other.histories_),
      has_gradients_(other.has_gradients_),
      has_one_node_(other.has_one_node_),
      draws_(other.draws_),
      has_formulas_(other.has_formulas_),
      calls_users_operator_(other.calls_users_operator_),
      shape_(other.shape_),
      shape_facts_(other.shape_facts_),
      copied_(other.copied_),
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

void ProvedSizes::add(const std::vector<int64_t>& values) {
  constexpr size_t kMost = 4096;  // forgotten sizes can be proved again
  if (!infers_) {
    if (each_.size() >= kMost) each_.clear();
    each_.insert(values);
    return;
  }
  for (size_t s = 0; s < values.size(); ++s) {
    if (s == between_.size()) between_.emplace_back(values[s], values[s]);
    between_[s] = {std::min(between_[s].first, values[s]), std::max(between_[s].second, values[s])};
  }
}

bool ProvedSizes::has(const std::vector<int64_t>& values) const {
  if (!infers_) return each_.contains(values);
  for (size_t s = 0; s < between_.size(); ++s) {
    if (values[s] < between_[s].first || values[s] > between_[s].second) return false;
  }
  return true;
}

void Specialisation::prove(const std::vector<int64_t>& values) {
  const std::lock_guard lock(mutex_);
  proved_->add(values);
}

bool Specialisation::matches(const Facts& row, capture::Bindings& bindings) const {
  if (dynamic_.symbols.empty() || is_exact()) {
    if (row != row_) return false;
    bindings.ints = dynamic_.int_hints;
  } else {
    if (!bind_symbols(row, bindings)) return false;
    if (proved_) {
      const std::lock_guard lock(mutex_);
      if (!proved_->has(bindings.ints)) return false;
    }
    capture::Env env;
    if (!evaluator_.evaluate(bindings, env) || !evaluator_.relations_hold(env)) return false;
    if (const auto known = pair(); known && !known->forward->holds_for(bindings)) return false;
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

std::shared_ptr<const ProgramPair> Specialisation::pair() const {
  const std::lock_guard lock(mutex_);
  return pairs_.empty() ? nullptr : pairs_.front();
}

std::vector<std::shared_ptr<const ProgramPair>> Specialisation::all_pairs() const {
  const std::lock_guard lock(mutex_);
  return pairs_;
}

std::shared_ptr<const ProgramPair> Specialisation::whole() const {
  for (const auto& each : all_pairs()) {
    if (each->whole == nullptr) return each;
  }
  return nullptr;
}

std::shared_ptr<const ProgramPair> Specialisation::pair_for(const std::vector<Facts>& tangents, const ProgramPair& forward) const {
  for (const auto& each : all_pairs()) {
    if (each->backward && each->forward == forward.forward && each->tangents == tangents) return each;
  }
  return nullptr;
}

void Specialisation::add(std::vector<std::shared_ptr<const ProgramPair>> made) {
  constexpr size_t kMost = 8;
  std::vector<std::shared_ptr<const ProgramPair>> oldest;  // destroyed after the lock is released, since that may free kernels
  const std::lock_guard lock(mutex_);
  if (!pairs_.empty() && pairs_.front()->forward != made.front()->forward) return;  // their forward has been replaced meanwhile
  pairs_.insert(pairs_.begin(), std::make_move_iterator(made.rbegin()), std::make_move_iterator(made.rend()));
  while (pairs_.size() > kMost) {
    const auto last = pairs_.end() - (pairs_.back()->whole == nullptr ? 2 : 1);
    oldest.push_back(std::move(*last));
    pairs_.erase(last);
  }
}

void Specialisation::note_miss(const std::shared_ptr<const ProgramPair>& pair) {
  const std::lock_guard lock(mutex_);
  const bool again = missed_.lock() == pair;
  missed_ = pair;
  const auto place = std::find(pairs_.begin(), pairs_.end(), pair);
  if (again && place != pairs_.end()) std::rotate(pairs_.begin(), place, place + 1);
}

void Specialisation::replace(const ProgramPair& former, std::shared_ptr<const ProgramPair> pair) {
  std::vector<std::shared_ptr<const ProgramPair>> all = {std::move(pair)};  // the old ones are destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (!pairs_.empty() && pairs_.front()->forward == former.forward) pairs_.swap(all);
}

void Specialisation::look_for_escapes(const capture::Recorder::WeakStandIns& made) {
  const bool is_held = std::any_of(made.begin(), made.end(), [](const auto& stand_in) { return !stand_in.expired(); });
  if (!is_held) return;
  if (const auto known = family()) return known->on_escape(*this);
  give_up();
}

bool Specialisation::is_like(const capture::FunctionTrace& trace) const {
  const auto same_result = [](const capture::Result& a, const capture::Result& b) {
    return a.is_differentiable == b.is_differentiable && a.written == b.written && a.is_seen == b.is_seen;
  };
  const capture::SymbolTable& symbols = *trace.symbols();
  if (symbols.unbacked_symbols() != symbols_->unbacked_symbols()) return false;
  capture::Env env;
  const bool has_its_sizes = !has_data_sizes_ || (evaluator_.evaluate(bindings_at_capture(symbols), env) && evaluator_.relations_hold(env));
  const std::set<uint32_t>& takes = trace.takes_gradients_of();
  return has_its_sizes && std::equal(takes.begin(), takes.end(), takes_gradients_of_.begin(), takes_gradients_of_.end()) &&
         std::equal(results_.begin(), results_.end(), trace.results().begin(), trace.results().end(), same_result) &&
         are_same(find_lifted(), trace.lifted()) && returned_.size() == trace.returned().size() &&
         numbers_.size() == trace.numbers().size();
}

bool Specialisation::has_same_outside_tensors(const Specialisation& other) const {
  return are_same(find_lifted(), other.find_lifted()) && shape_facts_ == other.shape_facts_;
}

capture::FunctionTrace::SizesOf Specialisation::sizes_of(const capture::Bindings& now) const {
  return sizes_of_inputs(row_, first_, dynamic_at(now));
}

DynamicRow Specialisation::dynamic_at(const capture::Bindings& now) const {
  DynamicRow dynamic = dynamic_;
  dynamic.int_hints = now.ints;
  return dynamic;
}

capture::FunctionTrace::SizesOf sizes_of_inputs(const Facts& row, const std::vector<uint32_t>& first, const DynamicRow& dynamic) {
  return [row, first, dynamic, made = std::vector<ExprId>()](size_t input, capture::SymbolTable& symbols) mutable {
    for (size_t s = made.size(); s < dynamic.int_hints.size(); ++s) {
      made.push_back(dynamic.is_size[s] ? symbols.size_symbol(dynamic.int_hints[s]) : symbols.int_symbol(dynamic.int_hints[s]));
      if (dynamic.is_steady[s]) symbols.set_steady(made.back());
    }
    const size_t place = first[input];
    const auto rank = static_cast<size_t>((row[place] >> 1) & 0x7f);
    std::vector<ExprId> sizes;
    for (size_t d = 0; d < rank; ++d) {
      const int32_t symbol = dynamic.symbols.empty() ? kStaticFact : dynamic.symbols[place + 1 + d];
      sizes.push_back(symbol == kStaticFact ? symbols.integer(row[place + 1 + d]) : made[symbol]);
    }
    return sizes;
  };
}

at::Tensor Specialisation::view(at::Tensor of, const std::vector<capture::ViewStep>& views, const capture::Bindings& bindings) const {
  capture::Env env;
  evaluator_.evaluate(bindings, env);
  return capture::Graph::view(std::move(of), views, env);
}

}  // namespace hindcast::engine
