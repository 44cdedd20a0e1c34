#pragma once
// Joint programs for tests of partitions: built by hand, or random.

#include "capture/function/joint.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace hindcast::tests {

/// Runs each op as it is added, to get the sizes and strides of its results. Primals come first, then the forward; what is added after the
/// first tangent is the backward.
class JointBuilder {
 public:
  using ValueId = capture::ValueId;

  ValueId primal(const at::Tensor& tensor);
  ValueId tangent(const at::Tensor& tensor);
  /// For an op with one result.
  ValueId call(const char* name, const char* overload, std::vector<capture::Arg> args);
  capture::ValueIds calls(const char* name, const char* overload, std::vector<capture::Arg> args);
  /// The op without its first argument, which is a copy of `base`.
  ValueId mutate(ValueId base, const char* name, const char* overload, std::vector<capture::Arg> args);
  ValueId add_gradients(ValueId a, ValueId b);

  static capture::Arg of(ValueId value) { return {capture::Arg::Kind::Value, {}, {value}, {}}; }
  static capture::Arg of(c10::IValue constant) { return {capture::Arg::Kind::Constant, std::move(constant), {}, {}}; }
  static capture::Arg none() { return of(c10::IValue()); }

  ValueId add(ValueId a, ValueId b) { return call("aten::add", "Tensor", {of(a), of(b), of(1)}); }
  ValueId mul(ValueId a, ValueId b) { return call("aten::mul", "Tensor", {of(a), of(b)}); }
  ValueId unary(const char* name, ValueId x) { return call(name, "", {of(x)}); }
  ValueId mm(ValueId a, ValueId b) { return call("aten::mm", "", {of(a), of(b)}); }
  ValueId t(ValueId x) { return call("aten::t", "", {of(x)}); }
  ValueId sum(ValueId x, int64_t dim) { return call("aten::sum", "dim_IntList", {of(x), of(std::vector<int64_t>{dim}), of(true), none()}); }

  const at::Tensor& tensor(ValueId value) const { return tensors_[value.index]; }
  capture::Joint joint(std::vector<ValueId> results, const std::vector<ValueId>& gradients);
  /// The values of the inputs, in the order of the joint.
  std::vector<at::Tensor> inputs() const;

 private:
  ValueId value(const at::Tensor& tensor, bool is_view);
  void end_forward();

  std::shared_ptr<capture::Graph> graph_ = std::make_shared<capture::Graph>();
  std::vector<at::Tensor> tensors_;  // by value
  std::vector<ValueId> primals_, tangents_;
  uint32_t forward_end_ = 0;
};

struct RandomJoint {
  capture::Joint joint;
  std::vector<at::Tensor> inputs;
};

/// Pointwise ops, views, sums, matrix products, writes and random numbers, in both halves; outputs at random, some undefined.
RandomJoint random_joint(uint32_t seed);

/// Values of a program by number, run op by op through ATen with the same random numbers.
std::unordered_map<uint32_t, at::Tensor> values_of(const capture::Graph& graph, const std::vector<at::Tensor>& inputs);

}  // namespace hindcast::tests
