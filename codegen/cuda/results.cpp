#include "codegen/cuda/results.h"

#include "codegen/cuda/cost_model.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

namespace hindcast::codegen::cuda {
namespace {

class OnDevice final : public ResultMaker {
 public:
  const CostModel& costs() const override { return cost_model(); }

  at::Tensor make_new(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type, c10::Device device) const override {
    const c10::OptionalDeviceGuard guard(device);
    const c10::DispatchKeySet keys(c10::computeDispatchKey(std::nullopt, std::nullopt, device));
    return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(device.type()), keys, type);
  }

  at::ScalarType made_as(const Body& /*body*/, const BodyStore& store) const override { return store.type; }

  // If the result has another shape than the gradient, both are contiguous.
  void write_to_leaf(const LeafWrites::Write& write, const at::Tensor& result) const override {
    const at::Tensor values = result.sizes() == write.gradient.sizes() ? result : result.view(write.gradient.sizes());
    if (write.adds) {
      write.gradient.add_(values);
    } else {
      write.gradient.copy_(values);
    }
  }
};

constinit const OnDevice kOnDevice{};

}  // namespace

const ResultMaker& result_maker() { return kOnDevice; }

}  // namespace hindcast::codegen::cuda
