#include "capture/graph/wrapped_number.h"

#include "capture/graph/known_op.h"

#include <algorithm>
#include <array>

namespace hindcast::capture {

std::optional<at::Scalar> wrapped_number(const Instr& instr) {
  static constinit KnownOp lift("aten::lift_fresh");
  if (instr.kind != InstrKind::Op || instr.op != lift.get() || !instr.args[0].constant.isTensor()) return std::nullopt;
  const at::Tensor& tensor = instr.args[0].constant.toTensor();
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->is_wrapped_number()) return std::nullopt;
  const bool is_real = tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kDouble;
  return is_real ? std::optional(tensor.item()) : std::nullopt;
}

std::optional<c10::OperatorHandle> overload_with_number(const c10::OperatorHandle& op) {
  struct Pair {
    explicit constexpr Pair(const char* name) : tensor(name, "Tensor"), number(name, "Scalar") {}
    KnownOp tensor, number;
  };
  static constinit std::array<Pair, 4> pairs = {Pair("aten::add"), Pair("aten::sub"), Pair("aten::mul"), Pair("aten::div")};
  const auto found = std::ranges::find_if(pairs, [&](Pair& each) { return each.tensor.get() == op; });
  return found == pairs.end() ? std::nullopt : std::optional(found->number.get());
}

}  // namespace hindcast::capture
