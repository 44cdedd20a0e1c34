// Three kinds of rule, since they differ in what they may break.
//
// A view that shows its source as it is: both are the same memory already, so that nothing changes but which tensor object is handed
// on. That matters to user code, which may keep it or change its shape, and to a leaf, which takes the object as its `.grad` where
// nobody else has it: what a node saved or the caller gave must not become a `.grad` in this way.
//
// A copy: it may only be left out where it is read and nothing else, before anything could have written to what it was copied from.
// Within a segment only leaves write, when they accumulate into a `.grad` that a formula may read too.
//
// A copy to new memory, whole, of what nothing else uses: its source is handed on, and needs no look at who may write to it.

#include "codegen/passes/simplify.h"

#include "codegen/passes/uses.h"
#include "base/index.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Value;
using capture::ValueId;

bool is_same_type(const Value& a, const Value& b) {
  return a.defined && b.defined && a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && a.strides == b.strides;
}

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : graph_(graph), uses_(graph), maker_(graph.values.size(), base::kNoIndex) {}

  Rewrite run() {
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      if (const auto source = copied_to_new_memory(instr, i)) {
        rewrite_.replaced[instr.outputs[0].index] = rewrite_.replacement_of(*source);
        rewrite_.removed.insert(i);
        ++rewrite_.reasons["the only use of what it copies"];
      }
      if (instr.kind != InstrKind::Op || instr.outputs.size() != 1 || !instr.outputs[0].defined()) continue;
      maker_[instr.outputs[0].index] = i;
      for (const Rule& rule : kRules) {
        const auto source = (this->*rule.find)(instr);
        if (!source || !may_stand_for(*source, instr.outputs[0], i)) continue;
        rewrite_.replaced[instr.outputs[0].index] = rewrite_.replacement_of(*source);
        rewrite_.removed.insert(i);
        ++rewrite_.reasons[rule.why];
        break;
      }
    }
    return std::move(rewrite_);
  }

 private:
  struct Rule {
    const char* why;
    /// What the instr's result is equal to.
    std::optional<ValueId> (Simplifier::*find)(const Instr&) const;
  };
  static const std::array<Rule, 5> kRules;

  const Value& value(ValueId id) const { return graph_.values[id.index]; }
  bool is_same_type(ValueId a, ValueId b) const { return codegen::is_same_type(value(a), value(b)); }

  static std::string name_of(const Instr& instr) { return c10::toString(instr.op->operator_name()); }
  static std::optional<ValueId> self_of(const Instr& instr) {
    if (instr.args.empty() || instr.args[0].kind != Arg::Kind::Value || !instr.args[0].values[0].defined()) return std::nullopt;
    return instr.args[0].values[0];
  }

  // Another shape of the same elements in the same order, also through other shapes between.
  std::optional<ValueId> same_shape_again(const Instr& instr) const {
    const ValueId result = instr.outputs[0];
    for (const Instr* view = &instr; view != nullptr && keeps_order(*view);) {
      const ValueId self = *self_of(*view);
      if (is_same_type(self, result)) return self;
      const uint32_t maker = maker_[self.index];
      view = maker == base::kNoIndex ? nullptr : &graph_.instrs[maker];
    }
    return std::nullopt;
  }
  bool keeps_order(const Instr& instr) const {
    static constexpr std::array<std::string_view, 7> kShapes = {"aten::view",        "aten::_unsafe_view", "aten::_reshape_alias",
                                                                "aten::unsqueeze",   "aten::squeeze",      "aten::squeeze.dim",
                                                                "aten::squeeze.dims"};
    const auto self = self_of(instr);
    if (!self || value(*self).dtype != value(instr.outputs[0]).dtype) return false;
    const std::string name = name_of(instr);
    if (name == "aten::expand") return is_same_type(*self, instr.outputs[0]);
    return std::find(kShapes.begin(), kShapes.end(), name) != kShapes.end();
  }

  // t of t, as in the gradient of every linear layer's weight, and _conj of _conj.
  std::optional<ValueId> done_twice(const Instr& instr) const {
    const std::string name = name_of(instr);
    const auto self = self_of(instr);
    if ((name != "aten::t" && name != "aten::_conj") || !self || maker_[self->index] == base::kNoIndex) return std::nullopt;
    const Instr& first = graph_.instrs[maker_[self->index]];
    const auto source = self_of(first);
    if (name_of(first) != name || !source || !is_same_type(*source, instr.outputs[0])) return std::nullopt;
    return source;
  }

  std::optional<ValueId> power_of_one(const Instr& instr) const { return with_one(instr, "aten::pow.Tensor_Scalar"); }
  std::optional<ValueId> times_one(const Instr& instr) const { return with_one(instr, "aten::mul.Scalar"); }
  std::optional<ValueId> divided_by_one(const Instr& instr) const { return with_one(instr, "aten::div.Scalar"); }

  // Of real numbers: a complex product with 1 has 0 times the other part in it, which is NaN where that is infinite.
  std::optional<ValueId> with_one(const Instr& instr, std::string_view name) const {
    const auto self = self_of(instr);
    if (!self || name_of(instr) != name || instr.args[1].kind != Arg::Kind::Constant) return std::nullopt;
    const c10::IValue& number = instr.args[1].constant;
    const bool is_one = number.isInt() ? number.toInt() == 1 : number.isDouble() && number.toDouble() == 1;
    if (!is_one || !at::isFloatingType(value(*self).dtype) || !is_same_type(*self, instr.outputs[0])) return std::nullopt;
    return self;
  }

  // As the gradient of a tensor that a view of it was written to. Where nobody else sees the source, its memory can be the copy's.
  std::optional<ValueId> copied_to_new_memory(const Instr& instr, uint32_t i) const {
    if (instr.kind != InstrKind::Mutate || !instr.views.empty() || name_of(instr) != "aten::copy_" ||
        maker_[instr.base.index] == base::kNoIndex)
      return std::nullopt;
    if (name_of(graph_.instrs[maker_[instr.base.index]]) != "aten::empty_strided") return std::nullopt;
    const Arg& from = instr.args[1];
    if (from.kind != Arg::Kind::Value || !from.values[0].defined()) return std::nullopt;
    const ValueId source = from.values[0], result = instr.outputs[0];
    if (!is_same_type(source, result) || value(source).is_view || !uses_.is_computed(source)) return std::nullopt;
    for (const Use& use : uses_.of_memory(source)) {
      const bool waits = use.kind == UseKind::Wait && uses_.segment_of(use.instr) == uses_.segment_of(i);
      if (use.instr != i && !waits) return std::nullopt;
    }
    return is_read_as_strided(result) ? std::nullopt : std::optional(source);
  }

  // From the beginning of the storage, which need not be that of the source.
  bool is_read_as_strided(ValueId id) const {
    const auto uses = uses_.of_memory(id);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      if (use.kind == UseKind::Show) return false;  // perhaps as a result, behind the last instr
      const Instr& user = graph_.instrs[use.instr];
      if (user.kind == InstrKind::Op) return name_of(user) == "aten::as_strided";
      if (user.kind != InstrKind::Mutate || use.kind != UseKind::Overwrite) return false;
      const bool writes = std::any_of(user.views.begin(), user.views.end(), [](const capture::ViewStep& view) {
        return c10::toString(view.op.operator_name()) == "aten::as_strided";
      });
      return writes || is_read_as_strided(user.outputs[0]);
    });
  }

  bool may_stand_for(ValueId source, ValueId result, uint32_t maker) const {
    const bool is_view = value(result).is_view;
    const std::vector<Use> uses = is_view ? uses_.of(result) : uses_.of_memory(result);
    const bool only_read = !is_view || !uses_.is_computed(rewrite_.replacement_of(source));
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      if (use.kind == UseKind::Show || uses_.segment_of(use.instr) != uses_.segment_of(maker)) return false;
      if (only_read && use.kind != UseKind::Read && use.kind != UseKind::Wait) return false;
      return is_view || !uses_.accumulates_between(maker, use.instr);
    });
  }

  const Graph& graph_;
  const Uses uses_;
  std::vector<uint32_t> maker_;  // by value: the op of one result that makes it
  Rewrite rewrite_;
};

const std::array<Simplifier::Rule, 5> Simplifier::kRules = {{
    {"taken back to the same shape", &Simplifier::same_shape_again},
    {"transposed or conjugated twice", &Simplifier::done_twice},
    {"to the power of 1", &Simplifier::power_of_one},
    {"times 1", &Simplifier::times_one},
    {"divided by 1", &Simplifier::divided_by_one},
}};

}  // namespace

Rewrite simplify(const Graph& graph) { return Simplifier(graph).run(); }

}  // namespace hindcast::codegen
