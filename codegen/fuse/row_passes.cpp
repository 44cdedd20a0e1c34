#include "codegen/fuse/row_passes.h"

#include <algorithm>

namespace hindcast::codegen {

RowPasses::RowPasses(const Body& body, IsCheap* is_cheap) : body_(body), is_cheap_(is_cheap), extents_(extents_of_ops(body)) {
  order_ops();
  slot_.assign(body.ops.size(), kNone);
  needed_.assign(count_, std::vector<bool>(body.ops.size()));
  loads_.assign(count_, std::vector<bool>(body.loads.size()));
  for (size_t pass = count_; pass-- > 0;) find_needed(pass);
}

bool RowPasses::has_segments() const { return std::find(extents_.begin(), extents_.end(), Extent::Segment) != extents_.end(); }

size_t RowPasses::first_pass_of(size_t load) const {
  for (size_t pass = 0; pass < count_; ++pass) {
    if (loads_[pass][load]) return pass;
  }
  return kNone;
}

bool RowPasses::is_read_again(size_t load) const {
  const auto passes = std::count_if(loads_.begin(), loads_.end(), [&](const std::vector<bool>& of_pass) { return of_pass[load]; });
  return body_.loads[load].pattern == AccessPattern::Dense && !body_.loads[load].counts && passes > 1;
}

void RowPasses::order_ops() {
  for (const BodyOp& op : body_.ops) {
    size_t ready = 0;
    for (const Operand arg : op.args) ready = std::max(ready, pass_of(arg));
    ready_.push_back(op.reduces_row() ? ready + 1 : ready);
    if (op.reduces_row()) count_ = std::max(count_, ready + 1);
    const bool reads_behind = std::any_of(op.args.begin(), op.args.end(),
                                          [&](Operand arg) { return arg.kind == Operand::Kind::Result && behind_segment_[arg.index]; });
    behind_segment_.push_back(op.reduces(Reduction::Over::Segment) || (reads_behind && !op.reduces_row()));
  }
  for (const BodyStore& store : body_.stores) {
    if (store.extent != Extent::Row) count_ = std::max(count_, pass_of(store.value) + 1);
  }
}

// To be called from the last pass to the first: an earlier pass computes the values that a later pass needs kept.
void RowPasses::find_needed(size_t pass) {
  for (size_t i = 0; i < body_.ops.size(); ++i) {
    if (reduces(pass, i)) need(body_.ops[i].args[0], pass);
  }
  for (const BodyStore& store : body_.stores) {
    if (store.extent != Extent::Row && pass_of(store.value) == pass) need(store.value, pass);
  }
  for (size_t i = 0; i < body_.ops.size(); ++i) {
    if (fills_slot(pass, i)) need({Operand::Kind::Result, static_cast<uint32_t>(i)}, pass);
  }
}

void RowPasses::need(Operand operand, size_t pass) {
  if (operand.kind == Operand::Kind::Load) loads_[pass][operand.index] = true;
  if (operand.kind != Operand::Kind::Result) return;
  const uint32_t op = operand.index;
  if (is_of_rows(op) || needed_[pass][op]) return;
  needed_[pass][op] = true;
  if (ready_[op] < pass && !is_of_segments(op) && !is_cheap_(body_.ops[op])) {
    if (slot_[op] == kNone) slot_[op] = slots_++;
    return;
  }
  for (const Operand arg : body_.ops[op].args) need(arg, pass);
}

}  // namespace hindcast::codegen
