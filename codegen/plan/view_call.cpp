#include "codegen/plan/view_call.h"

#include "base/fork.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include <string_view>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

using at::DimVector;
using capture::Arg;
using capture::Env;

struct Geometry {
  DimVector sizes, strides;
  int64_t offset = 0;
  static Geometry of(const at::Tensor& tensor) { return {DimVector(tensor.sizes()), DimVector(tensor.strides()), tensor.storage_offset()}; }
};

// The arguments after the tensor: integers and lists of integers, constant or symbolic.
class Numbers {
 public:
  Numbers(const Step& step, const Env& env) : step_(step), env_(env) {}
  bool is_none(size_t i) const { return step_.args[i].kind == Arg::Kind::Constant && step_.args[i].constant.isNone(); }
  int64_t at(size_t i) const {
    const StepArg& arg = step_.args[i];
    return arg.kind == Arg::Kind::Int ? env_.integer(arg.exprs[0]) : arg.constant.toInt();
  }
  DimVector list(size_t i) const {
    const StepArg& arg = step_.args[i];
    DimVector numbers;
    if (arg.kind == Arg::Kind::IntList) {
      for (const auto expr : arg.exprs) numbers.push_back(env_.integer(expr));
    } else {
      const auto constants = arg.constant.toIntList();
      for (size_t k = 0; k < constants.size(); ++k) numbers.push_back(constants.get(k));
    }
    return numbers;
  }

 private:
  const Step& step_;
  const Env& env_;
};

// Computes the geometry of the view, as ATen's op of that name does; false if ATen must run, for example to raise its error.
using Rule = bool(const at::Tensor& self, const Numbers& numbers, Geometry& result);

bool t(const at::Tensor& self, const Numbers&, Geometry& result) {
  if (self.dim() > 2) return false;
  result = Geometry::of(self);
  if (self.dim() == 2) std::swap(result.sizes[0], result.sizes[1]), std::swap(result.strides[0], result.strides[1]);
  return true;
}

bool transpose(const at::Tensor& self, const Numbers& numbers, Geometry& result) {
  if (self.dim() == 0) return false;
  const auto a = static_cast<size_t>(at::maybe_wrap_dim(numbers.at(1), self.dim()));
  const auto b = static_cast<size_t>(at::maybe_wrap_dim(numbers.at(2), self.dim()));
  result = Geometry::of(self);
  std::swap(result.sizes[a], result.sizes[b]);
  std::swap(result.strides[a], result.strides[b]);
  return true;
}

bool expand(const at::Tensor& self, const Numbers& numbers, Geometry& result) {
  const DimVector sizes = numbers.list(1);
  if (static_cast<int64_t>(sizes.size()) < self.dim()) return false;
  auto geometry = at::inferExpandGeometry_dimvector(self.sizes(), self.strides(), sizes);
  result = {std::move(geometry.sizes), std::move(geometry.strides), self.storage_offset()};
  return true;
}

bool view(const at::Tensor& self, const Numbers& numbers, Geometry& result) {
  const DimVector sizes = at::infer_size_dv(numbers.list(1), self.numel());
  auto strides = at::detail::computeStride(self.sizes(), self.strides(), sizes);
  if (!strides) return false;
  result = {sizes, std::move(*strides), self.storage_offset()};
  return true;
}

bool reshape_alias(const at::Tensor& self, const Numbers& numbers, Geometry& result) {
  result = {numbers.list(1), numbers.list(2), self.storage_offset()};
  return true;
}

bool select(const at::Tensor& self, const Numbers& numbers, Geometry& result) {
  if (self.dim() == 0) return false;
  const int64_t dim = at::maybe_wrap_dim(numbers.at(1), self.dim());
  int64_t index = numbers.at(2);
  if (index < -self.size(dim) || index >= self.size(dim)) return false;
  if (index < 0) index += self.size(dim);
  result = Geometry::of(self);
  result.offset += index * self.stride(dim);
  result.sizes.erase(result.sizes.begin() + dim);
  result.strides.erase(result.strides.begin() + dim);
  return true;
}

bool slice(const at::Tensor& self, const Numbers& numbers, Geometry& result) {
  const int64_t step = numbers.at(4);
  if (self.dim() == 0 || step <= 0) return false;
  const int64_t dim = at::maybe_wrap_dim(numbers.at(1), self.dim());
  const int64_t size = self.size(dim);
  int64_t start = numbers.is_none(2) ? 0 : numbers.at(2), end = numbers.is_none(3) ? size : numbers.at(3);
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, size);
  end = std::clamp<int64_t>(end, start, size);
  result = Geometry::of(self);
  result.offset += start * self.stride(dim);
  result.sizes[static_cast<size_t>(dim)] = (end - start + step - 1) / step;
  result.strides[static_cast<size_t>(dim)] *= step;
  return true;
}

class PreparedView final : public PreparedCall {
 public:
  void run(char* const* /*addresses*/, const Env& /*env*/) const override {}
  at::Tensor make_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) const override {
    return at::detail::empty_strided_cpu(sizes, strides, type);
  }
};

class ViewCall final : public OpCall {
 public:
  ViewCall(Rule* rule, std::unique_ptr<const OpCall> otherwise) : rule_(rule), otherwise_(std::move(otherwise)) {}

  std::unique_ptr<const PreparedCall> prepare(const Step& step, Slots& slots, const Env& env) const override {
    const at::Tensor& self = slots[step.args[0].slots[0].slot];
    Geometry geometry;
    if (step.outputs[0] == kNoSlot || !is_plain(self) || self.is_conj() || self.is_neg()) return nullptr;
    if (!rule_(self, Numbers(step, env), geometry)) return nullptr;
    auto prepared = std::make_unique<PreparedView>();
    prepared->results = {{geometry.sizes, geometry.strides, self.scalar_type()}};
    prepared->view_at = (geometry.offset - self.storage_offset()) * static_cast<int64_t>(self.element_size());
    return prepared;
  }

  void run(const Step& step, Slots& slots, const Env& env) const override {
    const SlotUse use = step.args[0].slots[0];
    at::Tensor& self = slots[use.slot];
    Geometry geometry;
    if (!is_plain(self) || !rule_(self, Numbers(step, env), geometry)) return otherwise_->run(step, slots, env);
    at::Tensor result;
    if (use.last && self.use_count() == 1 && !self.unsafeGetTensorImpl()->autograd_meta()) {
      result = std::move(self);  // no other owner, so it can be changed in place
    } else {
      result = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), self.dtype());
      if (use.last) self.reset();
    }
    result.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
    if (step.outputs[0] != kNoSlot) slots[step.outputs[0]] = std::move(result);
  }

 private:
  // Whether this is a dense CPU or CUDA tensor of LibTorch's own class.
  static bool is_plain(const at::Tensor& tensor) {
    using enum c10::DispatchKey;
    static const c10::DispatchKeySet plain(
        {CPU, AutogradCPU, AutocastCPU, CUDA, AutogradCUDA, AutocastCUDA, ADInplaceOrView, Conjugate, Negative});
    return tensor.defined() && (tensor.key_set() & plain) == tensor.key_set();
  }

  Rule* rule_;
  std::unique_ptr<const OpCall> otherwise_;
};

}  // namespace

std::unique_ptr<const OpCall> make_view_call(const Step& step, std::unique_ptr<const OpCall>& otherwise) {
  using Rules = std::unordered_map<std::string_view, Rule*>;
  static constinit base::MadeOnce<const Rules> made;
  const Rules& rules = made.by([] {
    return Rules{
        {"aten::t", t},
        {"aten::transpose.int", transpose},
        {"aten::expand", expand},
        {"aten::view", view},
        {"aten::_unsafe_view", view},
        {"aten::_reshape_alias", reshape_alias},
        {"aten::select.int", select},
        {"aten::slice.Tensor", slice},
    };
  });
  const auto& name = step.op->operator_name();
  const auto found = rules.find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  if (found == rules.end() || step.args[0].kind != Arg::Kind::Value) return nullptr;
  return std::make_unique<ViewCall>(found->second, std::move(otherwise));
}

}  // namespace hindcast::codegen
