#include "tests/engine/aot/joint_programs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <hindcast/hindcast.h>

#include "capture/function/function_trace.h"
#include "capture/recorder/recorder.h"
#include "codegen/partition/min_cut.h"
#include "engine/aot/program.h"

namespace hindcast::tests {

Tensors leaves_of(const Sizes& sizes, uint64_t seed, at::ScalarType type) {
  at::manual_seed(seed);
  Tensors leaves;
  for (const auto& of : sizes) leaves.push_back(at::randn(of, type).requires_grad_());
  return leaves;
}

capture::Joint joint_of(const Function& function, const Tensors& inputs) {
  EXPECT_TRUE(capture::recorder_available());
  capture::FunctionTrace trace;
  trace.forward(function, inputs);
  Tensors tangents;
  for (size_t i = 0; i < trace.results().size(); ++i) {
    if (trace.results()[i].is_differentiable) tangents.push_back(at::randn_like(trace.real_result(i)));
  }
  trace.backward(tangents);
  return trace.joint();
}

at::Tensor random_like(const capture::Joint& joint, capture::ValueId value) {
  const capture::Value& of = joint.graph->values[value.index];
  std::vector<int64_t> sizes;
  for (const auto size : of.sizes) sizes.push_back(joint.graph->symbols->hint(size));
  return at::empty_strided(sizes, of.strides, at::TensorOptions(of.dtype)).normal_();
}

Tensors run_with_kernels(const capture::Joint& joint, const Tensors& given, double memory_budget) {
  const auto parts = codegen::min_cut(joint, {.memory_budget = memory_budget});
  const auto bindings = capture::bindings_at_capture(*joint.graph->symbols);
  const engine::Program forward(parts.forward, compilers::fused(), false, {}), backward(parts.backward, compilers::fused(), false, {});
  const auto behind_primals = given.begin() + joint.primals;
  Tensors all = forward.run({given.begin(), behind_primals}, bindings);
  Tensors into(all.begin() + joint.results, all.end());
  all.resize(joint.results);
  into.insert(into.end(), behind_primals, given.end());
  const Tensors gradients = backward.run(std::move(into), bindings);
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

std::vector<int64_t> strides_that_matter(const at::Tensor& tensor) {
  std::vector<int64_t> strides;
  for (int64_t d = 0; d < tensor.dim(); ++d) strides.push_back(tensor.size(d) == 1 ? 0 : tensor.stride(d));
  return strides;
}

}  // namespace hindcast::tests
