// There are three kinds of rules, with different conditions.
//
// An identity view: result and source share memory already, so only the identity of the tensor object changes. That matters to user code,
// which may keep the object or change its shape, and to a leaf, which takes the object as its `.grad` if it has no other owner: a tensor
// that a node saved or that the caller passed must not become a `.grad` in this way.
//
// A copy: it may be removed only if all its uses are reads, before anything could have written to its source. Within a segment only leaves
// write, when they accumulate into a `.grad` that a formula may read too.
//
// A whole copy to new memory of a source without other uses: the source replaces the copy, and later writes to it do not matter.

#include "codegen/passes/simplify.h"

#include "capture/graph/value_uses.h"
#include "capture/ops/op_facts.h"
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
using capture::ViewKind;

bool is_same_type(const Value& a, const Value& b) {
  return a.defined && b.defined && a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && a.strides == b.strides;
}

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : graph_(graph), uses_(graph), makers_(graph) {}

  Rewrite run() {
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      if (const auto source = copied_to_new_memory(instr, i)) {
        rewrite_.replaced[instr.outputs[0].index] = rewrite_.replacement_of(*source);
        rewrite_.removed.insert(i);
        ++rewrite_.reasons["the only use of what it copies"];
      }
      if (instr.kind != InstrKind::Op || instr.outputs.size() != 1 || !instr.outputs[0].defined()) continue;
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
    /// The value that the instr's result equals.
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

  // The op with one result that makes the value; nullptr if none does.
  const Instr* maker_of(ValueId value) const {
    const uint32_t maker = value.defined() ? makers_.maker_of(value) : base::kNoIndex;
    if (maker == base::kNoIndex) return nullptr;
    const Instr& instr = graph_.instrs[maker];
    return instr.kind == InstrKind::Op && instr.outputs.size() == 1 ? &instr : nullptr;
  }

  // Another shape of the same elements in the same order, also through other shapes between.
  std::optional<ValueId> same_shape_again(const Instr& instr) const {
    const ValueId result = instr.outputs[0];
    for (const Instr* view = &instr; view != nullptr && keeps_order(*view);) {
      const ValueId self = *self_of(*view);
      if (is_same_type(self, result)) return self;
      view = maker_of(self);
    }
    return std::nullopt;
  }
  bool keeps_order(const Instr& instr) const {
    const auto self = self_of(instr);
    if (!self || value(*self).dtype != value(instr.outputs[0]).dtype) return false;
    const ViewKind view = capture::facts_of(instr.op->operator_name()).view;
    return view == ViewKind::Reshape || (view == ViewKind::Broadcast && is_same_type(*self, instr.outputs[0]));
  }

  // t(t(x)), as in the gradient of every linear layer's weight, and _conj(_conj(x)).
  std::optional<ValueId> done_twice(const Instr& instr) const {
    const std::string name = name_of(instr);
    const auto self = self_of(instr);
    if ((name != "aten::t" && name != "aten::_conj") || !self) return std::nullopt;
    const Instr* const first = maker_of(*self);
    if (first == nullptr || name_of(*first) != name) return std::nullopt;
    const auto source = self_of(*first);
    if (!source || !is_same_type(*source, instr.outputs[0])) return std::nullopt;
    return source;
  }

  std::optional<ValueId> power_of_one(const Instr& instr) const { return with_one(instr, "aten::pow.Tensor_Scalar"); }
  std::optional<ValueId> times_one(const Instr& instr) const { return with_one(instr, "aten::mul.Scalar"); }
  std::optional<ValueId> divided_by_one(const Instr& instr) const { return with_one(instr, "aten::div.Scalar"); }

  // x * 1, x / 1 and x ** 1 for real numbers. A complex product with 1 includes 0 times the other part, which is NaN if that is infinite.
  std::optional<ValueId> with_one(const Instr& instr, std::string_view name) const {
    const auto self = self_of(instr);
    if (!self || name_of(instr) != name || instr.args[1].kind != Arg::Kind::Constant) return std::nullopt;
    const c10::IValue& number = instr.args[1].constant;
    const bool is_one = number.isInt() ? number.toInt() == 1 : number.isDouble() && number.toDouble() == 1;
    if (!is_one || !at::isFloatingType(value(*self).dtype) || !is_same_type(*self, instr.outputs[0])) return std::nullopt;
    return self;
  }

  // A copy_() to a new tensor, as in the gradient of a tensor whose view was written to. If the source has no other uses, it can replace
  // the copy.
  std::optional<ValueId> copied_to_new_memory(const Instr& instr, uint32_t i) const {
    if (instr.kind != InstrKind::Mutate || !instr.views.empty() || name_of(instr) != "aten::copy_") return std::nullopt;
    const Instr* const maker = maker_of(instr.base);
    if (maker == nullptr || name_of(*maker) != "aten::empty_strided") return std::nullopt;
    const Arg& from = instr.args[1];
    if (from.kind != Arg::Kind::Value || !from.values[0].defined()) return std::nullopt;
    const ValueId source = from.values[0], result = instr.outputs[0];
    if (!is_same_type(source, result) || value(source).is_view || !uses_.is_computed(source) || uses_.may_be_zero_tensor(source))
      return std::nullopt;
    for (const Use& use : uses_.of_memory(source)) {
      const bool waits = use.kind == UseKind::Wait && uses_.segment_of(use.instr) == uses_.segment_of(i);
      if (use.instr != i && !waits) return std::nullopt;
    }
    return is_read_as_strided(result) ? std::nullopt : std::optional(source);
  }

  // Whether as_strided reads the value: it counts from the start of the storage, which may differ from the source's.
  bool is_read_as_strided(ValueId id) const {
    const auto uses = uses_.of_memory(id);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      if (use.kind == UseKind::Show) return false;  // may be an output of the graph, which is no instr
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
  const capture::ValueUses makers_;
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
