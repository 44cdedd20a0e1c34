#include "tests/whole/fuzz/builder.h"

#include <algorithm>

namespace hindcast::tests::fuzz {

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  for (size_t d = 0; d < shorter.size(); ++d) {
    Dim& dim = result[longer.size() - shorter.size() + d];
    if (dim.is_one()) {
      dim = shorter[d];
    } else if (!(shorter[d] == dim) && !shorter[d].is_one()) {
      return std::nullopt;
    }
  }
  return result;
}

bool is_small(const Shape& shape) {
  int64_t elements = 1, batches = 0;
  for (const Dim& dim : shape) {
    elements *= dim.factor;
    batches += dim.batch;
  }
  return shape.size() <= 4 && elements <= 64 && batches <= 2;
}

int Builder::new_value(const Type& type, const Value& value) {
  program_.types.push_back(type);
  values_.push_back(value);
  return count() - 1;
}

int Builder::add_leaf(const Shape& shape, at::ScalarType dtype, std::optional<bool> requires_grad) {
  Leaf leaf;
  leaf.lasting = !has_batch(shape) && random_.percent(80);
  leaf.requires_grad = requires_grad ? *requires_grad : random_.percent(leaf.lasting ? 85 : 45);
  if (random_.percent(15)) {
    // descend() writes lasting leaves, and an expanded tensor cannot be written.
    leaf.layout = random_.pick({Layout::Transposed, Layout::Sliced, leaf.lasting ? Layout::Sliced : Layout::Expanded});
  }
  Value value;
  value.requires_grad = leaf.requires_grad;
  value.leaf = true;
  value.contiguous = leaf.layout == Layout::Contiguous;
  value.overlaps = leaf.layout == Layout::Expanded;
  value.storage = static_cast<int>(storages_.size());
  storages_.push_back({.fixed = leaf.requires_grad || leaf.lasting});
  leaf.value = new_value({shape, dtype}, value);
  program_.leaves.push_back(leaf);
  return leaf.value;
}

int Builder::add(Instr instr, const std::vector<Type>& results) {
  const Op& row = op(instr.op);
  const bool view = (row.traits & kView) != 0;
  Value result;
  result.contiguous = (row.traits & kKeepsLayout) != 0;
  for (const int operand : {instr.a, instr.b, instr.c}) {
    if (operand < 0) continue;
    Value& used = values_[operand];
    const bool hook = row.rule == Rule::Hook || row.rule == Rule::LeafHook;
    used.used |= !hook;
    result.requires_grad |= used.requires_grad;
    result.contiguous &= used.contiguous;
    // A view does not save its base; its readers may.
    if (!(row.traits & kSavesNothing) && !hook) storages_[used.storage].saved = true;
  }
  if (row.rule == Rule::Detach) result.requires_grad = false;
  if (is_statement(row.rule)) {
    if (row.rule != Rule::Hook && row.rule != Rule::LeafHook) note_write(instr);
    program_.instrs.push_back(instr);
    return -1;
  }
  if (row.traits & kManyViews) storages_[values_[instr.a].storage].fixed = true;
  instr.first_result = count();
  instr.results = static_cast<int>(results.size());
  for (const Type& type : results) {
    Value made = result;
    if (view) {
      const Value& source = values_[instr.a];
      made.view = true;
      made.storage = source.storage;
      made.overlaps = source.overlaps || row.rule == Rule::Expand;
      made.refuses_writes = source.refuses_writes || (row.traits & kManyViews) || row.rule == Rule::Detach;
    } else {
      made.storage = static_cast<int>(storages_.size());
      storages_.push_back({.saved = (row.traits & kSavesResult) != 0});
    }
    new_value(type, made);
  }
  program_.instrs.push_back(instr);
  return instr.first_result;
}

void Builder::note_write(const Instr& instr) {
  const Value& target = values_[instr.a];
  const bool brings_grad = instr.b >= 0 && values_[instr.b].requires_grad;
  if (op(instr.op).traits & kSavesResult) storages_[target.storage].saved = true;
  if (!brings_grad || instr.when != When::Always) return;
  for (Value& value : values_) {
    if (value.storage == target.storage && !value.leaf) value.requires_grad = true;
  }
  values_[instr.a].requires_grad = true;
}

bool Builder::may_write(int index) const {
  const Value& value = values_[index];
  const Storage& storage = storages_[value.storage];
  return !storage.fixed && !value.overlaps && !value.refuses_writes && (reckless_ || !storage.saved);
}

int Builder::find(const std::function<bool(int)>& fits) {
  std::vector<int> found;
  for (int value = 0; value < count(); ++value) {
    if (fits(value)) found.push_back(value);
  }
  if (found.empty()) return -1;
  const auto size = static_cast<int64_t>(found.size());
  return found[static_cast<size_t>(std::max(random_.below(size), random_.percent(60) ? random_.below(size) : 0))];
}

}  // namespace hindcast::tests::fuzz
