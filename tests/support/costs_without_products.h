#pragma once

#include "codegen/cpu/cost_model.h"
#include "tests/support/forwarded_costs.h"

namespace hindcast::tests {

/// The CPU's costs for CUDA kernels that run on CPU tensors: none of them computes a matrix product, checks an index, or repeats a number.
class CostsWithoutProducts final : public ForwardedCosts {
 public:
  using ForwardedCosts::is_worth_it;
  bool is_worth_it(const codegen::ProductShape& /*product*/) const override { return false; }
  bool checks_indices() const override { return false; }
  bool repeats_numbers_of_rows() const override { return false; }
  bool joins_numbers_of_rows() const override { return false; }
  bool keeps_small_groups_open() const override { return false; }

 private:
  const codegen::CostModel& of() const override { return codegen::cpu::cost_model(); }
};
inline constexpr CostsWithoutProducts kCostsWithoutProducts{};

}  // namespace hindcast::tests
