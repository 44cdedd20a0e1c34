#pragma once
// The part of a pointwise kernel's call that all backends share. Results are dense in the order of the domain's axes. If each load has the
// same layout or is one broadcast element, the kernel runs one loop over all elements; otherwise it is called in a loop nest.

#include "codegen/kernel/call_frame.h"

#include <vector>

namespace hindcast::codegen {

class PointwiseFrame : public CallFrame {
 public:
  PointwiseFrame(const Group& group, const ResultMaker& maker);

 protected:
  void lay_out(Call& call) const final;
  ResultLayout layout_of(const Call& call, size_t store) const final;
  bool may_take_input(const Call& call, size_t /*store*/) const override { return call.is_one_loop; }

  bool is_broadcast(size_t load) const { return load < loads_ && group_.body.loads[load].pattern == AccessPattern::Broadcast; }

  /// Pointers and strides are those of Body::loads, then Body::stores, then the product if ATen has computed it.
  struct Nest {
    c10::SmallVector<at::Tensor, 16> loads;  // some are copies
    Pointers pointers;
    c10::SmallVector<Loop, 4> loops;
  };
  Nest nest_of(const Call& call) const { return nest_of(call, call.results, nullptr); }
  Nest nest_of(const Call& call, c10::ArrayRef<at::Tensor> results, const at::Tensor* product) const;

  std::vector<int64_t> element_sizes_;  // bytes, in the order of Nest
  bool reads_padded_ = false;

 private:
  bool is_one_loop(const Call& call) const;
  bool lies_as_domain(size_t load, const Call& call) const;

  std::vector<bool> has_shape_of_domain_;  // by store
  std::vector<bool> is_in_order_;          // by load: its dims have the order of the axes
  std::vector<uint8_t> axes_;              // all axes
};

}  // namespace hindcast::codegen
