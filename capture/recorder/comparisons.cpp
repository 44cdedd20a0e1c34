#include "capture/recorder/comparisons.h"

namespace hindcast::capture {

const c10::OperatorName kEqual("aten::equal", "");

namespace {

const c10::OperatorName kAllClose("aten::allclose", "");

c10::OperatorHandle find(const char* name, const char* overload) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload); }

}  // namespace

bool is_comparison(const c10::OperatorName& op) { return op == kEqual || op == kAllClose; }

Comparison as_tensor(const c10::OperatorName& op, const std::vector<c10::IValue>& inputs) {
  static const auto eq = find("aten::eq", "Tensor"), isclose = find("aten::isclose", ""), all = find("aten::all", "");
  return {op == kEqual ? eq : isclose, inputs, all};
}

}  // namespace hindcast::capture
