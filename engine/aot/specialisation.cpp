#include "engine/aot/specialisation.h"

#include "capture/backward/trace.h"
#include "engine/aot/family.h"

#include <algorithm>

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

}  // namespace

InputFacts::InputFacts(const std::vector<at::Tensor>& inputs, const std::vector<bool>& is_static, bool with_kinds) {
  std::vector<capture::FactOrigin> origins;
  for (size_t i = 0; i < inputs.size(); ++i) {
    first.push_back(static_cast<uint32_t>(row.size()));
    capture::append_tensor_facts(inputs[i], row, with_kinds ? &origins : nullptr);
    // A leaf is guarded, since a write to one that requires grad is an error. The meta word has this bit free.
    constexpr int64_t kLeaf = int64_t{1} << 61;
    if (inputs[i].defined() && inputs[i].requires_grad() && inputs[i].is_leaf()) row[first.back()] |= kLeaf;
    for (; kinds.size() < origins.size();) {
      const FactKind kind = origins[kinds.size()].kind;
      kinds.push_back(i < is_static.size() && is_static[i] && kind == FactKind::TensorSize ? FactKind::TensorStride : kind);
    }
  }
}

Specialisation::Specialisation(InputFacts facts, DynamicRow dynamic, const capture::FunctionTrace& trace, FunctionOutput output,
                               TracedFunction function, const HasOwner& has_owner)
    : row_(std::move(facts.row)),
      first_(std::move(facts.first)),
      dynamic_(std::move(dynamic)),
      function_(std::move(function)),
      symbols_(trace.symbols()),
      evaluator_(*symbols_),
      results_(trace.results()),
      returned_(trace.returned()),
      numbers_(trace.numbers()),
      lifted_row_(facts_of(trace.lifted())),
      draws_(trace.draws_random_numbers()),
      shape_(std::move(output.shape)),
      shape_facts_(std::move(output.facts)) {
  for (const at::Tensor& tensor : trace.lifted()) lifted_.emplace_back(tensor, has_owner && has_owner(tensor));
  for (uint32_t i = 0; i < trace.primal_count(); ++i) {
    needs_gradient_.push_back(trace.needs_gradient(i));
    // A leaf from outside that needs a gradient is a parameter, as a rule: its owner keeps it.
    if (i >= trace.input_count() && trace.needs_gradient(i) && trace.is_leaf(i)) lasting_.push_back(i);
    if (trace.needs_gradient(i) && trace.is_leaf(i)) leaves_.push_back(i);
  }
  has_gradients_ = std::any_of(results_.begin(), results_.end(), [](const capture::Result& result) { return result.is_differentiable; });
  const bool writes =
      std::any_of(results_.begin(), results_.end(), [](const capture::Result& result) { return result.written.has_value(); });
  const bool shares = std::any_of(returned_.begin(), returned_.end(),
                                  [](const Returned& each) { return each.from == Returned::From::Result && !each.views.empty(); });
  can_run_again_ = !writes && !draws_ && !shares;
  is_exact_ = symbols_->has_answered();
}

Specialisation::Specialisation(InputFacts facts, TracedFunction function)
    : row_(std::move(facts.row)), first_(std::move(facts.first)), function_(std::move(function)), is_eager_(true) {}

Specialisation::Specialisation(const Specialisation& other, std::shared_ptr<capture::SymbolTable> symbols, std::vector<Returned> returned)
    : row_(other.row_),
      first_(other.first_),
      dynamic_(other.dynamic_),
      function_(other.function_),
      symbols_(std::move(symbols)),
      evaluator_(*symbols_),
      results_(other.results_),
      returned_(std::move(returned)),
      numbers_(other.numbers_),
      lifted_(other.lifted_),
      lifted_row_(other.lifted_row_),
      needs_gradient_(other.needs_gradient_),
      lasting_(other.lasting_),
      leaves_(other.leaves_),
      has_gradients_(other.has_gradients_),
      draws_(other.draws_),
      can_run_again_(other.can_run_again_),
      shape_(other.shape_),
      shape_facts_(other.shape_facts_),
      family_(other.family_) {}

std::optional<std::vector<int64_t>> Specialisation::values_of_symbols(const Facts& row) const {
  if (row.size() != row_.size()) return std::nullopt;
  std::vector<bool> bound(dynamic_.int_hints.size());
  std::vector<int64_t> values(dynamic_.int_hints.size());
  for (size_t i = 0; i < row.size(); ++i) {
    const int32_t symbol = dynamic_.symbols[i];
    if (symbol == kStaticFact ? row[i] != row_[i] : bound[symbol] && values[symbol] != row[i]) return std::nullopt;
    if (symbol == kStaticFact) continue;
    bound[symbol] = true;
    values[symbol] = row[i];
  }
  return values;
}

void Specialisation::limit_to(const std::vector<int64_t>& values) {
  const std::lock_guard lock(mutex_);
  for (const int64_t value : values) ranges_.emplace_back(value, value);
}

void Specialisation::widen(const std::vector<int64_t>& values) {
  const std::lock_guard lock(mutex_);
  for (size_t s = 0; s < values.size(); ++s) {
    ranges_[s] = {std::min(ranges_[s].first, values[s]), std::max(ranges_[s].second, values[s])};
  }
}

bool Specialisation::is_in_range(const std::vector<int64_t>& values) const {
  const std::lock_guard lock(mutex_);
  for (size_t s = 0; s < ranges_.size(); ++s) {
    if (values[s] < ranges_[s].first || values[s] > ranges_[s].second) return false;
  }
  return true;
}

bool Specialisation::matches(const Facts& row, capture::Bindings& bindings) const {
  if (dynamic_.symbols.empty() || is_exact()) {
    if (row != row_) return false;
    bindings.ints = dynamic_.int_hints;
  } else {
    auto values = values_of_symbols(row);
    if (!values || !is_in_range(*values)) return false;
    bindings.ints = std::move(*values);
    capture::Env env;
    if (!evaluator_.evaluate(bindings, env) || !evaluator_.relations_hold(env)) return false;
    if (const auto known = halves(); known && !known->forward->holds_for(bindings)) return false;
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

std::shared_ptr<const Halves> Specialisation::halves() const {
  const std::lock_guard lock(mutex_);
  return halves_.empty() ? nullptr : halves_.front();
}

std::vector<std::shared_ptr<const Halves>> Specialisation::all_halves() const {
  const std::lock_guard lock(mutex_);
  return halves_;
}

std::shared_ptr<const Halves> Specialisation::halves_for(const torch::autograd::variable_list& tangents) const {
  for (const auto& each : all_halves()) {
    bool fits = each->tangents.size() == tangents.size();
    for (size_t i = 0; fits && i < tangents.size(); ++i) fits = tangent_facts(tangents[i]) == each->tangents[i];
    if (fits) return each;
  }
  return nullptr;
}

void Specialisation::add(std::shared_ptr<const Halves> halves) {
  constexpr size_t kMost = 8;
  std::shared_ptr<const Halves> oldest;  // destroyed after the lock is released: kernels may go with it
  const std::lock_guard lock(mutex_);
  halves_.insert(halves_.begin(), std::move(halves));
  if (halves_.size() <= kMost) return;
  oldest = std::move(halves_.back());
  halves_.pop_back();
}

void Specialisation::was_missed(const std::shared_ptr<const Halves>& halves) {
  const std::lock_guard lock(mutex_);
  const bool again = missed_.lock() == halves;
  missed_ = halves;
  const auto place = std::find(halves_.begin(), halves_.end(), halves);
  if (again && place != halves_.end()) std::rotate(halves_.begin(), place, place + 1);
}

void Specialisation::replace(const Halves& former, std::shared_ptr<const Halves> halves) {
  const std::lock_guard lock(mutex_);
  for (auto& each : halves_) {
    if (each.get() == &former) return each.swap(halves);  // the former one is destroyed after the lock is released
  }
}

void Specialisation::look_for_escapes(const capture::Recorder::WeakStandIns& made) {
  const bool is_held = std::any_of(made.begin(), made.end(), [](const auto& stand_in) { return !stand_in.expired(); });
  if (!is_held) return;
  if (const auto known = family()) return known->escaped(*this);
  give_up();
}

bool Specialisation::is_like(const capture::FunctionTrace& trace) const {
  const auto same_result = [](const capture::Result& a, const capture::Result& b) {
    return a.is_differentiable == b.is_differentiable && a.written == b.written && a.is_seen == b.is_seen;
  };
  return std::equal(results_.begin(), results_.end(), trace.results().begin(), trace.results().end(), same_result) &&
         are_same(find_lifted(), trace.lifted()) && returned_.size() == trace.returned().size() &&
         numbers_.size() == trace.numbers().size();
}

bool Specialisation::is_alike_outside(const Specialisation& other) const {
  return are_same(find_lifted(), other.find_lifted()) && shape_facts_ == other.shape_facts_;
}

capture::FunctionTrace::SizesOf Specialisation::sizes_of(const capture::Bindings& now) const {
  DynamicRow dynamic = dynamic_;
  dynamic.int_hints = now.ints;
  return sizes_of_inputs(row_, first_, dynamic);
}

capture::FunctionTrace::SizesOf sizes_of_inputs(const Facts& row, const std::vector<uint32_t>& first, const DynamicRow& dynamic) {
  return [row, first, dynamic, made = std::vector<ExprId>()](size_t input, capture::SymbolTable& symbols) mutable {
    for (size_t s = made.size(); s < dynamic.int_hints.size(); ++s) {
      made.push_back(dynamic.is_size[s] ? symbols.size_symbol(dynamic.int_hints[s]) : symbols.int_symbol(dynamic.int_hints[s]));
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
