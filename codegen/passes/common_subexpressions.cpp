// After sharing, two results have one memory. No one must be able to observe this:
//
//   later instrs   write in place only if a run finds no other owner of the memory
//   user code      may write to what it is given: so values that it sees, or that are held while it runs, are not shared
//   leaves         the last one takes the tensor and the others copy; but views of it would be taken too, and share memory
//
// Whether a leaf's gradient is shared directly or through a view is known only after all sharing is done, since views of shared values are
// shared in turn. So the pass shares everything, checks the result, and repeats without the instrs that were wrong.

#include "codegen/passes/common_subexpressions.h"

#include "codegen/passes/instr_key.h"
#include "codegen/passes/uses.h"

#include <algorithm>
#include <vector>

namespace hindcast::codegen {
namespace {

using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Value;
using capture::ValueId;

constexpr int kMostRounds = 8;  // two are usual; a graph that needs more is left unchanged

struct Merge {
  uint32_t instr, earlier;
};

class Sharing {
 public:
  Sharing(const Graph& graph, const ReuseLimits& limits) : graph_(graph), limits_(limits), uses_before_(graph) {}

  Rewrite run() {
    for (int round = 0; round < kMostRounds; ++round) {
      share();
      if (!find_wrong()) return std::move(rewrite_);
    }
    return {};
  }

 private:
  void share() {
    rewrite_ = {};
    merges_.clear();
    std::unordered_map<std::string, uint32_t> known;
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      if (capture::is_barrier(instr)) known.clear();
      if (instr.kind != InstrKind::Op || graph_.binds_sizes(instr)) continue;  // each unbacked size is bound by its own op, in order
      const auto key = key_of(instr, rewrite_);
      if (!key) continue;
      const auto [earlier, is_new] = known.try_emplace(*key, i);
      if (is_new || apart_.contains(i) || !makes_the_same(graph_.instrs[earlier->second], instr)) continue;
      for (size_t k = 0; k < instr.outputs.size(); ++k) {
        if (instr.outputs[k].defined()) rewrite_.replaced[instr.outputs[k].index] = graph_.instrs[earlier->second].outputs[k];
      }
      rewrite_.removed.insert(i);
      ++rewrite_.reasons[instr.op->operator_name().name.substr(6) + " computed twice"];
      merges_.push_back({i, earlier->second});
    }
  }

  // Whether the results have the same properties. Some results of an op with several may be undefined in the graph.
  bool makes_the_same(const Instr& a, const Instr& b) const {
    return std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(), [&](ValueId left, ValueId right) {
      if (!left.defined() || !right.defined()) return left == right;
      const Value &one = graph_.values[left.index], &other = graph_.values[right.index];
      return one.dtype == other.dtype && one.sizes == other.sizes && one.strides == other.strides && one.defined == other.defined &&
             one.is_view == other.is_view;
    });
  }

  bool find_wrong() {
    const Uses uses(graph_, rewrite_);
    const size_t before = apart_.size();
    kept_bytes_ = 0;
    std::unordered_map<uint32_t, bool> may_share;  // by the earlier instr, with which several may have been merged
    for (const Merge merge : merges_) {
      const auto [known, is_new] = may_share.try_emplace(merge.earlier);
      if (is_new) known->second = may_be_shared(uses, merge.earlier);
      if (!known->second || !fits_in_memory(merge)) apart_.insert(merge.instr);
    }
    return apart_.size() != before;
  }

  bool may_be_shared(const Uses& uses, uint32_t i) const {
    const auto& outputs = graph_.instrs[i].outputs;
    return std::all_of(outputs.begin(), outputs.end(), [&](ValueId output) {
      if (!output.defined()) return true;
      // Views shared memory already.
      const bool is_view = graph_.values[output.index].is_view;
      ValueId accumulated;
      for (const Use& use : is_view ? uses.of(output) : uses.of_memory(output)) {
        if (use.kind == UseKind::Show || uses.segment_of(use.instr) != uses.segment_of(i)) return false;
        if (is_view) continue;
        // A Mutate would have to copy its base instead of taking it.
        if (use.kind == UseKind::Overwrite && graph_.instrs[use.instr].kind == InstrKind::Mutate) return false;
        if (use.kind != UseKind::Keep) continue;
        if (accumulated.defined() && accumulated != use.value) return false;
        accumulated = use.value;
      }
      return true;
    });
  }

  bool fits_in_memory(Merge merge) {
    int64_t bytes = 0;
    for (const ValueId output : graph_.instrs[merge.earlier].outputs) {
      if (output.defined() && !graph_.values[output.index].is_view && !is_used_behind(output, merge.instr)) bytes += bytes_of(output);
    }
    if (bytes > limits_.of_one || kept_bytes_ + bytes > limits_.of_all) return false;
    kept_bytes_ += bytes;
    return true;
  }

  bool is_used_behind(ValueId value, uint32_t instr) const {
    const auto uses = uses_before_.of_memory(value);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.instr > instr; });
  }

  int64_t bytes_of(ValueId id) const {
    const Value& value = graph_.values[id.index];
    if (!value.defined || value.dtype == at::ScalarType::Undefined) return 0;
    int64_t bytes = static_cast<int64_t>(c10::elementSize(value.dtype));
    for (const capture::ExprId size : value.sizes) bytes *= graph_.symbols->hint(size);
    return bytes;
  }

  const Graph& graph_;
  const ReuseLimits& limits_;
  const Uses uses_before_;
  std::unordered_set<uint32_t> apart_;  // instrs that must not be shared
  Rewrite rewrite_;
  std::vector<Merge> merges_;
  int64_t kept_bytes_ = 0;
};

}  // namespace

Rewrite common_subexpressions(const Graph& graph, const CostModel& costs) { return Sharing(graph, costs.reuse_limits()).run(); }

}  // namespace hindcast::codegen
