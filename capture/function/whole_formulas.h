#pragma once
// Autograd formulas that branch on values: the backward of prod counts zeros, that of max looks for NaN.
//
// A recording of such a formula would be valid for similar values only. So the formula stays whole: its node's function, as LibTorch packs
// it for compiled autograd, is one op of the program, hindcast::formula.

#include "capture/recorder/libtorch_compat.h"

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

namespace hindcast::capture {

class WholeFormulas {
 public:
  /// From now on a recorded backward of `made` calls each such formula as one op.
  void put_into(const std::vector<at::Tensor>& made);
  /// From now on LibTorch's own nodes are called again. Otherwise a graph task could call one of them twice: as itself, and as one op.
  void take_out_of(const std::vector<at::Tensor>& made);
  /// The edge, or its replacement.
  torch::autograd::Edge operator()(const torch::autograd::Edge& edge) const;

 private:
  std::unordered_map<torch::autograd::Node*, NodePtr> instead_of_;
};

}  // namespace hindcast::capture
