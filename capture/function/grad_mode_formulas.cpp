#include "capture/function/grad_mode_formulas.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace hindcast::capture {

bool asks_for_grad_mode(const torch::autograd::Node& node) {
  // Nodes of LibTorch 2.11 whose apply() calls GradMode::is_enabled(), directly or in a function of FunctionsManual.cpp. Not
  // SiluBackward0, whose operator capture/graph/differentiable_forms.h replaces; nor BinaryCrossEntropyWithLogitsBackward0, which writes in
  // place only in no-grad mode: a replay differentiates such writes.
  static constexpr std::array<std::string_view, 19> kAsk = {
      "Atan2Backward0",
      "BinaryCrossEntropyBackwardBackward0",
      "FusedRmsNormBackward0",
      "IndexReduceBackward0",
      "LinalgDetBackward0",
      "LinalgHouseholderProductBackward0",
      "LinalgSlogdetBackward0",
      "LinalgSolveExBackward0",
      "LogitBackward0",
      "MishBackward0",
      "MkldnnRnnLayerBackward0",
      "NativeDropoutBackward0",
      "NativeGroupNormBackward0",
      "OrmqrBackward0",
      "ProdBackward0",
      "ScatterReduceBackward0",
      "ThnnFusedGruCellBackward0",
      "ThnnFusedLstmCellBackward0",
      "WeightNormInterfaceBackward0",
  };
  const std::string name = node.name();
  return std::find(kAsk.begin(), kAsk.end(), name) != kAsk.end();
}

}  // namespace hindcast::capture
