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

// By result: most ops return one view.
using Geometries = c10::SmallVector<Geometry, 1>;

// Computes the geometry of the views, as ATen's op of that name does; false if ATen must run, for example to raise its error.
using Rule = bool(const at::Tensor& self, const Numbers& numbers, Geometries& results);

// For an op that returns one view.
template <bool (*rule)(const at::Tensor& self, const Numbers& numbers, Geometry& result)>
bool one(const at::Tensor& self, const Numbers& numbers, Geometries& results) {
  return rule(self, numbers, results.emplace_back());
}

bool same(const at::Tensor& self, const Numbers& /*numbers*/, Geometry& result) {
  result = Geometry::of(self);
  return true;
}

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

// The part of `self` that begins at `start` in dim `dim`.
Geometry piece_of(const at::Tensor& self, int64_t dim, int64_t start, int64_t size) {
  Geometry piece = Geometry::of(self);
  piece.offset += start * self.stride(dim);
  piece.sizes[static_cast<size_t>(dim)] = size;
  return piece;
}

bool split(const at::Tensor& self, const Numbers& numbers, Geometries& results) {
  const int64_t size = numbers.at(1);
  if (self.dim() == 0 || size <= 0) return false;
  const int64_t dim = at::maybe_wrap_dim(numbers.at(2), self.dim()), all = self.size(dim);
  for (int64_t start = 0; start == 0 || start < all; start += size)
    results.push_back(piece_of(self, dim, start, std::min(size, all - start)));
  return true;
}

bool split_with_sizes(const at::Tensor& self, const Numbers& numbers, Geometries& results) {
  if (self.dim() == 0) return false;
  const int64_t dim = at::maybe_wrap_dim(numbers.at(2), self.dim());
  int64_t start = 0;
  for (const int64_t size : numbers.list(1)) {
    if (size < 0) return false;
    results.push_back(piece_of(self, dim, start, size));
    start += size;
  }
  return start == self.size(dim);
}

bool unbind(const at::Tensor& self, const Numbers& numbers, Geometries& results) {
  if (self.dim() == 0) return false;
  const int64_t dim = at::maybe_wrap_dim(numbers.at(1), self.dim());
  for (int64_t i = 0; i < self.size(dim); ++i) {
    Geometry& row = results.emplace_back(piece_of(self, dim, i, 1));
    row.sizes.erase(row.sizes.begin() + dim);
    row.strides.erase(row.strides.begin() + dim);
  }
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
    Geometries geometries;
    if (!is_plain(self) || self.is_conj() || self.is_neg() || !finds(self, step, env, geometries)) return nullptr;
    auto prepared = std::make_unique<PreparedView>();
    for (const Geometry& view : geometries) {
      prepared->results.push_back({view.sizes, view.strides, self.scalar_type()});
      prepared->views_at.push_back((view.offset - self.storage_offset()) * static_cast<int64_t>(self.element_size()));
    }
    return prepared;
  }

  void run(const Step& step, Slots& slots, const Env& env) const override {
    const SlotUse use = step.args[0].slots[0];
    at::Tensor& self = slots[use.slot];
    Geometries geometries;
    if (!is_plain(self) || !finds(self, step, env, geometries)) return otherwise_->run(step, slots, env);
    at::Tensor taken;
    if (use.last) taken = std::move(self);
    if (use.last && taken.use_count() == 1 && geometries.size() == 1 && !taken.unsafeGetTensorImpl()->autograd_meta()) {
      set_geometry(taken, geometries[0]);  // no other owner, so it can be changed in place
      return put(std::move(taken), 0, step, slots);
    }
    const at::Tensor& base = use.last ? taken : self;
    for (size_t i = 0; i < geometries.size(); ++i) {
      if (step.outputs[i] == kNoSlot) continue;
      at::Tensor view =
          at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), base.dtype());
      set_geometry(view, geometries[i]);
      put(std::move(view), i, step, slots);
    }
  }

 private:
  bool finds(const at::Tensor& self, const Step& step, const Env& env, Geometries& geometries) const {
    return rule_(self, Numbers(step, env), geometries) && geometries.size() == step.outputs.size();
  }
  static void set_geometry(const at::Tensor& view, const Geometry& geometry) {
    view.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  }
  static void put(at::Tensor view, size_t output, const Step& step, Slots& slots) {
    if (step.outputs[output] != kNoSlot) slots[step.outputs[output]] = std::move(view);
  }

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
        {"aten::alias", one<same>},
        {"aten::detach", one<same>},
        {"aten::t", one<t>},
        {"aten::transpose.int", one<transpose>},
        {"aten::expand", one<expand>},
        {"aten::view", one<view>},
        {"aten::_unsafe_view", one<view>},
        {"aten::_reshape_alias", one<reshape_alias>},
        {"aten::select.int", one<select>},
        {"aten::slice.Tensor", one<slice>},
        {"aten::split.Tensor", split},
        {"aten::split_with_sizes", split_with_sizes},
        {"aten::unbind.int", unbind},
    };
  });
  const auto& name = step.op->operator_name();
  const auto found = rules.find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  if (found == rules.end() || step.args[0].kind != Arg::Kind::Value) return nullptr;
  return std::make_unique<ViewCall>(found->second, std::move(otherwise));
}

}  // namespace hindcast::codegen
