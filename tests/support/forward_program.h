#pragma once
// A function's program with kernels, without a backward around it.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernel/later.h"
#include "codegen/plan/plan.h"
#include "hindcast/graph.h"

namespace hindcast::tests {

using Tensors = std::vector<at::Tensor>;
using Names = std::vector<std::string>;
using Function = std::function<Tensors(const Tensors& inputs)>;

enum class SizesAre : uint8_t { Constants, Symbols };

/// Symbols: each size above 1 is a symbol, equal sizes share one. `later`: as in Backend::kernel().
class ForwardProgram {
 public:
  ForwardProgram(const Function& function, const Tensors& inputs, SizesAre sizes = SizesAre::Constants, codegen::RunLater later = nullptr);

  /// Ops that ATen computes.
  const Names& left() const { return left_; }
  size_t kernels() const { return kernels_; }
  Tensors run(const Tensors& inputs) const;

 private:
  void record(const Function& function, const Tensors& inputs, SizesAre sizes_are);

  std::shared_ptr<capture::Graph> graph_ = std::make_shared<capture::Graph>();
  std::vector<std::pair<int64_t, std::pair<size_t, int64_t>>> symbols_;  // by number: its size, and the input and dim that have it
  std::unique_ptr<codegen::Plan> plan_;
  Names left_;
  size_t kernels_ = 0;
};

/// Copies; those of real numbers in another type.
Tensors as(const Tensors& inputs, at::ScalarType type);

/// Has the layout of ATen's result, and is at most twice as far from the reference as that, plus some units in the last place of the
/// largest value. `terms`: the size of numbers that may cancel in the result.
void expect_near(const at::Tensor& ours, const at::Tensor& stock, const at::Tensor& truth, int units = 4, double terms = 0);
void expect_near(const Tensors& ours, const Tensors& stock, const Tensors& truth, int units = 4);

}  // namespace hindcast::tests
