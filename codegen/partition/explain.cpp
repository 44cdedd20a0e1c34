#include "codegen/partition/explain.h"

#include "base/format.h"
#include "capture/graph/print.h"
#include "capture/graph/value_uses.h"
#include "codegen/partition/joint_uses.h"
#include "codegen/partition/standard.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::Joint;
using capture::Partitioned;
using capture::ValueId;

namespace {

class JointPrinter : public capture::Printer {
 public:
  explicit JointPrinter(const Joint& joint) : Printer(*joint.graph), joint_(joint) { name_values(); }

  using Printer::name;
  using Printer::typed;

 protected:
  std::vector<Input> inputs() const override {
    std::vector<Input> inputs = Printer::inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].name = i < joint_.primals ? name_of_primal(i) : base::format("tangents_{}", i + 1 - joint_.primals);
    }
    return inputs;
  }

 private:
  std::string name_of_primal(size_t i) const {
    const bool is_named = i < joint_.primal_names.size() && !joint_.primal_names[i].empty();
    return is_named ? joint_.primal_names[i] : base::format("primals_{}", i + 1);
  }

  const Joint& joint_;
};

std::string op_name(const Instr& instr) {
  if (instr.kind == capture::InstrKind::Event) return "event";
  if (!instr.op) return "sum of gradients";
  return instr.op->operator_name().name;
}

class Explanation {
 public:
  Explanation(const Joint& joint, const Partitioned& parts)
      : joint_(joint), parts_(parts), uses_(joint), uses_in_backward_(*parts.backward), printer_(joint) {}

  std::string text() const {
    std::string text = base::format("saves {}; the standard partition saves {}\n", total(parts_.saved), total(standard(uses_).saved));
    for (const ValueId value : parts_.saved) {
      text += base::format("  {}, {} bytes{}: {}\n", printer_.typed(value), uses_.bytes_of(uses_.memory_of(value)),
                           uses_.is_primal(value) ? " of an input" : "", reason(value));
    }
    return text + recomputed();
  }

 private:
  std::string total(std::span<const ValueId> saved) const {
    const auto inputs = static_cast<size_t>(std::count_if(saved.begin(), saved.end(), [&](ValueId v) { return uses_.is_primal(v); }));
    const size_t made = saved.size() - inputs;
    std::string text = base::format("{} tensor{} of {} bytes", made, made == 1 ? "" : "s", saved_bytes(uses_, saved));
    if (inputs != 0) text += base::format(" and {} input{}", inputs, inputs == 1 ? "" : "s");
    return text;
  }

  std::string reason(ValueId value) const {
    constexpr size_t kNamed = 3;
    std::string text;
    const auto readers = uses_in_backward_.users_of(value);
    for (size_t k = 0; k < std::min(kNamed, readers.size()); ++k) {
      const Instr& reader = parts_.backward->instrs[readers[k]];
      const ValueId made = reader.outputs.empty() ? ValueId() : reader.outputs[0];
      text += base::format("{}{} ({})", k == 0 ? "for " : ", ", printer_.name(made), op_name(reader));
    }
    if (readers.size() > kNamed) text += base::format(" and {} more", readers.size() - kNamed);
    const auto gradients = joint_.gradient_values();
    if (std::find(gradients.begin(), gradients.end(), value) != gradients.end()) text += text.empty() ? "a gradient" : ", and a gradient";
    return text;
  }

  // Instrs of the backward that the forward computes too.
  std::string recomputed() const {
    std::vector<bool> is_made(joint_.graph->values.size());
    for (const Instr& instr : parts_.forward->instrs) {
      for (const ValueId value : instr.outputs) {
        if (value.defined()) is_made[value.index] = true;
      }
    }
    std::map<std::string, size_t> counts;
    size_t total = 0;
    for (const Instr& instr : parts_.backward->instrs) {
      const bool again =
          std::any_of(instr.outputs.begin(), instr.outputs.end(), [&](ValueId value) { return value.defined() && is_made[value.index]; });
      if (!again) continue;
      ++counts[op_name(instr)];
      ++total;
    }
    if (total == 0) return "computes nothing again\n";
    std::vector<std::pair<std::string, size_t>> most_first(counts.begin(), counts.end());
    std::stable_sort(most_first.begin(), most_first.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text;
    for (const auto& [name, count] : most_first) {
      text += text.empty() ? "" : ", ";
      text += count == 1 ? name : base::format("{} ({})", name, count);
    }
    return base::format("computes {} op{} again: {}\n", total, total == 1 ? "" : "s", text);
  }

  const Joint& joint_;
  const Partitioned& parts_;
  const JointUses uses_;
  const capture::ValueUses uses_in_backward_;
  const JointPrinter printer_;
};

}  // namespace

std::vector<std::string> names_of(const Joint& joint) {
  const JointPrinter printer(joint);
  std::vector<std::string> names;
  for (uint32_t value = 0; value < joint.graph->values.size(); ++value) names.push_back(printer.name({value}));
  return names;
}

std::string explain(const Joint& joint, const Partitioned& parts) { return Explanation(joint, parts).text(); }

}  // namespace hindcast::codegen
