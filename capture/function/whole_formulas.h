#pragma once
// Formulas of autograd that look at values: the backward of prod counts zeros, that of max looks for NaN.
//
// What is recorded through such a formula holds for values like these. So the formula stays whole: its node's function, as LibTorch packs it for
// compiled autograd, is one op of the program, hindcast::formula.

#include "capture/recorder/libtorch_compat.h"

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

namespace hindcast::capture {

class WholeFormulas {
 public:
  /// From now on a recorded backward of `made` calls such formulas as wholes.
  void put_into(const std::vector<at::Tensor>& made);
  /// From now on LibTorch's own nodes are called again. Else a graph task could call one of them twice: as itself, and as a whole.
  void take_out_of(const std::vector<at::Tensor>& made);
  /// The edge, or what has taken its place.
  torch::autograd::Edge operator()(const torch::autograd::Edge& edge) const;

 private:
  std::unordered_map<torch::autograd::Node*, NodePtr> instead_of_;
};

}  // namespace hindcast::capture
