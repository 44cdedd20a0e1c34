#include "capture/recorder/hidden_writes.h"

#include "capture/graph/known_op.h"

namespace hindcast::capture {

namespace {

const c10::OperatorName kBatchNorm("aten::native_batch_norm", ""), kLegit("aten::_native_batch_norm_legit", ""),
    kWithUpdate("aten::_batch_norm_with_update", ""), kRrelu("aten::rrelu_with_noise", "");

bool is_given(const c10::IValue& tensor) { return tensor.isTensor() && tensor.toTensor().defined(); }

}  // namespace

// Batch norm in training updates its running mean and variance. Autograd does not count that as a write: no version changes.
std::optional<HiddenWrite> hidden_write(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs) {
  static constinit KnownOp legit("aten::_native_batch_norm_legit_functional"), with_update("aten::_batch_norm_with_update_functional"),
      rrelu("aten::rrelu_with_noise_functional");
  const c10::OperatorName& name = op.operator_name();
  if (name == kBatchNorm || name == kLegit) {
    const bool is_training = inputs[5].toBool() && is_given(inputs[3]) && is_given(inputs[4]);
    if (is_training || name == kLegit)
      return HiddenWrite{legit.get(), is_training ? std::vector<uint32_t>{3, 4} : std::vector<uint32_t>(), 3};
  }
  if (name == kWithUpdate) return HiddenWrite{with_update.get(), {3, 4}, 4};
  if (name == kRrelu) return HiddenWrite{rrelu.get(), {1}, 1, /*makes_contiguous=*/true};
  return std::nullopt;
}

}  // namespace hindcast::capture
