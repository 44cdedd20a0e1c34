#include "codegen/passes/transposed_factors.h"

#include "capture/graph/known_op.h"
#include "codegen/passes/uses.h"

#include <algorithm>

namespace hindcast::codegen {
namespace {

using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Value;
using capture::ValueId;

// The copy takes as long as some of the copies that products make, and its memory lives until the last product.
constexpr size_t kFewestProducts = 4;
constexpr int64_t kLargest = int64_t{1} << 20;  // bytes

// Whether the instr is a product whose second factor, and nothing else, is the value.
bool is_product_with(const Instr& instr, ValueId value) {
  if (instr.kind != InstrKind::Op) return false;
  const c10::OperatorName& name = instr.op->operator_name();
  const size_t second = name.name == "aten::mm" ? 1 : name.name == "aten::addmm" ? 2 : 0;
  if (second == 0 || !name.overload_name.empty()) return false;
  for (size_t i = 0; i < instr.args.size(); ++i) {
    const auto& values = instr.args[i].values;
    if ((std::find(values.begin(), values.end(), value) != values.end()) != (i == second)) return false;
  }
  return true;
}

class TransposedFactors {
 public:
  explicit TransposedFactors(const Graph& graph) : graph_(graph), uses_(graph) {}

  Rewrite run() {
    static constinit capture::KnownOp t_copy("aten::t_copy");
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      if (instr.kind != InstrKind::Op || instr.outputs.size() != 1 || !instr.outputs[0].defined()) continue;
      if (instr.op->operator_name().name != "aten::t" || !is_worth_it(i, instr.outputs[0])) continue;
      Instr copying = instr;
      copying.op = t_copy.get();
      rewrite_.rebuilt[i] = std::move(copying);
      Value copy = graph_.values[instr.outputs[0].index];
      copy.is_view = false;
      copy.strides = {size_of(copy, 1), 1};
      rewrite_.values[instr.outputs[0].index] = std::move(copy);
      ++rewrite_.reasons["transposed factors copied once"];
    }
    return std::move(rewrite_);
  }

 private:
  int64_t size_of(const Value& value, size_t dim) const { return graph_.symbols->hint(value.sizes[dim]); }

  bool is_worth_it(uint32_t instr, ValueId id) const {
    const Value& value = graph_.values[id.index];
    const bool is_real = value.dtype == at::kFloat || value.dtype == at::kDouble;
    if (!value.device.is_cpu() || !is_real || value.sizes.size() != 2) return false;
    const int64_t rows = size_of(value, 0), columns = size_of(value, 1);
    const bool is_transposed = rows > 1 && columns > 1 && value.strides[0] == 1 && value.strides[1] == rows;
    if (!is_transposed || rows * columns * static_cast<int64_t>(c10::elementSize(value.dtype)) > kLargest) return false;
    const std::vector<Use>& uses = uses_.of(id);
    return uses.size() >= kFewestProducts && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
             return use.kind == UseKind::Read && uses_.segment_of(use.instr) == uses_.segment_of(instr) &&
                    is_product_with(graph_.instrs[use.instr], id);
           });
  }

  const Graph& graph_;
  const Uses uses_;
  Rewrite rewrite_;
};

}  // namespace

Rewrite transposed_factors(const Graph& graph) { return TransposedFactors(graph).run(); }

}  // namespace hindcast::codegen
