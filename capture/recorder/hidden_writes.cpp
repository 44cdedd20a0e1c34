#include "capture/recorder/hidden_writes.h"

namespace hindcast::capture {

// Batch norm in training moves its running mean and variance. Autograd does not count that as a write: no version changes.
std::optional<HiddenWrite> hidden_write(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs) {
  static const c10::OperatorName kBatchNorm("aten::native_batch_norm", "");
  if (op.operator_name() != kBatchNorm) return std::nullopt;
  const c10::IValue &mean = inputs[3], &variance = inputs[4], &is_training = inputs[5];
  if (!is_training.toBool() || !mean.isTensor() || !variance.isTensor() || !mean.toTensor().defined() || !variance.toTensor().defined()) {
    return std::nullopt;
  }
  return HiddenWrite{c10::Dispatcher::singleton().findSchemaOrThrow("aten::_native_batch_norm_legit_functional", ""), {3, 4}, 3};
}

}  // namespace hindcast::capture
