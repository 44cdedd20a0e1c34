#pragma once
// Forwards to another cost model. A test overrides some of its methods.

#include "codegen/fuse/cost_model.h"

namespace hindcast::tests {

class ForwardedCosts : public codegen::CostModel {
 public:
  c10::DeviceType device() const override { return of().device(); }
  const codegen::KernelLimits& limits() const override { return of().limits(); }
  const codegen::ReuseLimits& reuse_limits() const override { return of().reuse_limits(); }
  bool is_call_bound(int64_t numel) const override { return of().is_call_bound(numel); }
  bool is_read_worth_sharing(int64_t bytes) const override { return of().is_read_worth_sharing(bytes); }
  bool is_worth_it(const codegen::RowShape& rows) const override { return of().is_worth_it(rows); }
  bool is_worth_it(const codegen::SegmentedNorm& norm) const override { return of().is_worth_it(norm); }
  bool is_worth_it(const codegen::ProductShape& product) const override { return of().is_worth_it(product); }
  bool is_worth_it(const codegen::SingleOp& op) const override { return of().is_worth_it(op); }
  bool is_padding_read_through(int64_t numel, int64_t padded) const override { return of().is_padding_read_through(numel, padded); }
  bool is_concat_written_in_place(int64_t piece) const override { return of().is_concat_written_in_place(piece); }
  bool checks_indices() const override { return of().checks_indices(); }
  bool repeats_numbers_of_rows() const override { return of().repeats_numbers_of_rows(); }
  bool joins_numbers_of_rows() const override { return of().joins_numbers_of_rows(); }
  bool keeps_small_groups_open() const override { return of().keeps_small_groups_open(); }
  bool is_memory_worth_taking(int64_t bytes) const override { return of().is_memory_worth_taking(bytes); }
  bool are_far_angles_inlined(size_t functors) const override { return of().are_far_angles_inlined(functors); }

 protected:
  ~ForwardedCosts() = default;

 private:
  virtual const codegen::CostModel& of() const = 0;
};

}  // namespace hindcast::tests
