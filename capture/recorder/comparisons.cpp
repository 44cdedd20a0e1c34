#include "capture/recorder/comparisons.h"

#include "capture/graph/known_op.h"

namespace hindcast::capture {

const c10::OperatorName kEqual("aten::equal", "");

namespace {

const c10::OperatorName kAllClose("aten::allclose", "");

}  // namespace

bool is_comparison(const c10::OperatorName& op) { return op == kEqual || op == kAllClose; }

Comparison as_tensor(const c10::OperatorName& op, const std::vector<c10::IValue>& inputs) {
  static constinit KnownOp eq("aten::eq", "Tensor"), isclose("aten::isclose"), all("aten::all");
  return {op == kEqual ? eq.get() : isclose.get(), inputs, all.get()};
}

}  // namespace hindcast::capture
