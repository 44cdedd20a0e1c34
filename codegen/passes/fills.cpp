#include "codegen/passes/fills.h"

#include "capture/graph/args.h"

#include <optional>
#include <string_view>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::constant;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Value;
using capture::ValueId;

class Fills {
 public:
  explicit Fills(const Graph& graph) : graph_(graph) {}

  Rewrite run() {
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      if (instr.kind != InstrKind::Op || instr.outputs.size() != 1 || !instr.outputs[0].defined()) continue;
      const std::string name = c10::toString(instr.op->operator_name());
      if (const auto number = number_of(instr, name)) {
        numbers_[instr.outputs[0].index] = *number;
        rebuild(i, "aten::full", {constant(c10::List<int64_t>()), constant(*number)});
      } else if (name == "aten::new_zeros") {
        rebuild(i, "aten::zeros", {instr.args[1]});
      } else if (name == "aten::new_ones") {
        rebuild(i, "aten::ones", {instr.args[1]});
      } else if (name == "aten::new_full") {
        rebuild(i, "aten::full", {instr.args[1], instr.args[2]});
      }
    }
    return std::move(rewrite_);
  }

 private:
  const Value& value(ValueId id) const { return graph_.values[id.index]; }

  // Replaces the instr by a factory. `args`: those before the type.
  void rebuild(uint32_t i, const char* factory, std::vector<Arg> args) {
    Instr instr = graph_.instrs[i];
    const Value& result = value(instr.outputs[0]);
    instr.op = c10::Dispatcher::singleton().findSchemaOrThrow(factory, "");
    instr.args = std::move(args);
    for (c10::IValue value : {c10::IValue(result.dtype), c10::IValue(), c10::IValue(result.device), c10::IValue()})
      instr.args.push_back(constant(std::move(value)));
    rewrite_.rebuilt[i] = std::move(instr);
    ++rewrite_.reasons["fills that read no tensor"];
  }

  // The number that the result, a tensor without dimensions, is known to have.
  std::optional<double> number_of(const Instr& instr, std::string_view name) const {
    const Value& result = value(instr.outputs[0]);
    // Other devices may divide by a number in another way.
    const bool is_of_known_type = result.dtype == at::kFloat || result.dtype == at::kDouble;
    if (!result.sizes.empty() || !result.device.is_cpu() || !is_of_known_type) return std::nullopt;
    if (name == "aten::ones_like") return 1;
    if (name == "aten::zeros_like") return 0;
    const bool is_product = name == "aten::mul.Tensor" || name == "aten::mul.Scalar";
    const bool is_quotient = name == "aten::div.Tensor" || name == "aten::div.Scalar";
    if (!is_product && !is_quotient && name != "aten::neg") return std::nullopt;
    const auto a = known(instr.args[0], result.dtype), b = name == "aten::neg" ? -1.0 : known(instr.args[1], result.dtype);
    if (!a || !b) return std::nullopt;
    // As ATen, both operands and the result have the type of the tensor.
    if (result.dtype == at::kDouble) return is_quotient ? *a / *b : *a * *b;
    const auto x = static_cast<float>(*a), y = static_cast<float>(*b);
    return is_quotient ? x / y : x * y;
  }

  std::optional<double> known(const Arg& arg, at::ScalarType type) const {
    if (arg.kind == Arg::Kind::Constant && arg.constant.isDouble()) return arg.constant.toDouble();
    if (arg.kind == Arg::Kind::Constant && arg.constant.isInt()) return static_cast<double>(arg.constant.toInt());
    if (arg.kind != Arg::Kind::Value || !arg.values[0].defined() || value(arg.values[0]).dtype != type) return std::nullopt;
    const auto found = numbers_.find(arg.values[0].index);
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }

  const Graph& graph_;
  std::unordered_map<uint32_t, double> numbers_;  // by value
  Rewrite rewrite_;
};

}  // namespace

Rewrite fills(const Graph& graph) { return Fills(graph).run(); }

}  // namespace hindcast::codegen
