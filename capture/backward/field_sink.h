#pragma once
// Receives the saved fields of one autograd node, in LibTorch's order of collection, and sorts them: structure into the key, sizes and
// scalars into facts, tensors into slots. Called by the generated collectors on every backward, so all of it is inline and allocates only
// by growing reused vectors.

#include "capture/backward/facts.h"
#include "capture/backward/libtorch_access.h"
#include "capture/recorder/libtorch_compat.h"
#include "cache/key.h"

#include <ATen/TensorGeometry.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/OptionalArrayRef.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable_info.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <bit>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace hindcast::capture {

/// The node cannot be collected now (released or modified saved tensor); the stock engine raises the right error.
struct CannotCollect : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class FieldSink {
 public:
  FieldSink(cache::KeyBytes& key, Facts& facts, std::vector<at::Tensor>& tensors) : key_(key), facts_(facts), tensors_(tensors) {}

  static constexpr const char* kSavedWithHooks = "saved tensor with hooks";
  /// Why the node must be called as itself (saved-tensor hooks, sparse data, ...); nullptr otherwise.
  const char* opaque_reason = nullptr;
  /// Filled on a miss only: one origin per fact.
  std::vector<FactOrigin>* origins = nullptr;
  /// Replaces symbolic sizes by their numbers. Only with `origins`, which keeps this check off the hit path.
  bool forgets_symbols = false;
  uint32_t call = 0;
  /// If set: sizes are listed here too, scalars are part of the key, and saved tensors have their autograd history.
  std::vector<int64_t>* integers = nullptr;

  void saved(const torch::autograd::SavedVariable& variable) {
    ++field_;
    save(variable);
  }
  void saved_list(const std::vector<torch::autograd::SavedVariable>& variables, bool released) {
    ++field_;
    if (released) throw CannotCollect("saved tensors were released");
    cache::append_size(key_, variables.size());
    for (const auto& variable : variables) save(variable);
  }
  void tensor(const at::Tensor& tensor) {
    ++field_;
    save_tensor(tensor);
  }

  void size(const c10::SymInt& size) {
    ++field_;
    save_size(size, 0);
  }
  void sizes(const std::vector<c10::SymInt>& sizes) {
    ++field_;
    save_sizes(sizes);
  }
  void optional_size(const std::optional<c10::SymInt>& size) {
    ++field_;
    cache::append(key_, size.has_value());
    if (size) save_size(*size, 0);
  }
  void optional_sizes(const c10::OptionalArray<c10::SymInt>& sizes) {
    ++field_;
    cache::append(key_, sizes.list.has_value());
    if (sizes.list) save_sizes(*sizes.list);
  }
  void nested_sizes(const std::vector<std::vector<c10::SymInt>>& sizes) {
    ++field_;
    cache::append_size(key_, sizes.size());
    for (const auto& inner : sizes) save_sizes(inner);
  }

  void scalar(const at::Scalar& scalar) {
    ++field_;
    save_scalar(scalar);
  }
  void scalar(double scalar) {
    ++field_;
    save_double(scalar);
  }
  void optional_scalar(const std::optional<at::Scalar>& scalar) {
    ++field_;
    cache::append(key_, scalar.has_value());
    if (scalar) save_scalar(*scalar);
  }
  void optional_scalar(const std::optional<double>& scalar) {
    ++field_;
    cache::append(key_, scalar.has_value());
    if (scalar) save_double(*scalar);
  }
  void scalars(const std::vector<at::Scalar>& scalars) {
    ++field_;
    cache::append_size(key_, scalars.size());
    for (const auto& scalar : scalars) save_scalar(scalar);
  }

  void type_and_size(const torch::autograd::TypeAndSize& value) {
    ++field_;
    save_sizes(value.sym_sizes);
    save_constant(value.options);
  }
  void types_and_sizes(const std::vector<torch::autograd::TypeAndSize>& values) {
    ++field_;
    cache::append_size(key_, values.size());
    for (const auto& value : values) {
      save_sizes(value.sym_sizes);
      save_constant(value.options);
    }
  }
  void geometry(const at::TensorGeometry& geometry) {
    ++field_;
    save_sizes(geometry.sym_sizes());
    save_sizes(geometry.sym_strides());
    save_size(geometry.sym_storage_offset(), 0);
  }

  template <class T>
  void constant(const T& value) {
    ++field_;
    save_constant(value);
  }

 private:
  void save(const torch::autograd::SavedVariable& variable) {
    if (variable.has_hooks()) {
      opaque_reason = kSavedWithHooks;
      return;
    }
    const at::Tensor& data = saved_data(variable);
    if (!data.defined()) {
      if (!was_default_constructed(variable)) throw CannotCollect("saved tensors were released");
    } else if (saved_version(variable) != data.unsafeGetTensorImpl()->version_counter().current_version()) {
      throw CannotCollect("a saved tensor was modified in place");
    }
    if (integers != nullptr) [[unlikely]]
      return save_tensor(variable.unpack(owner_->getptr()));
    save_tensor(data);
  }
  void save_tensor(const at::Tensor& tensor) {
    if (tensor.defined() && !is_plain(tensor)) opaque_reason = "saved tensor that is not a plain strided one";
    append_tensor_facts(tensor, facts_, origins, {FactKind::TensorMeta, call, field_ - 1, 0});
    tensors_.push_back(tensor);
  }
  void save_size(const c10::SymInt& size, uint32_t dim) {
    facts_.push_back(size.guard_int(__FILE__, __LINE__));
    if (integers != nullptr) [[unlikely]]
      integers->push_back(facts_.back());
    if (!origins) return;
    note(FactKind::SavedSize, dim);
    if (forgets_symbols) const_cast<c10::SymInt&>(size) = facts_.back();  // a field of the node
  }
  void save_sizes(c10::SymIntArrayRef sizes) {
    cache::append_size(key_, sizes.size());
    uint32_t dim = 0;
    for (const auto& size : sizes) save_size(size, dim++);
  }
  void save_double(double value) {
    facts_.push_back(std::bit_cast<int64_t>(value));
    note_scalar(origins && rounds_differently_for_symbols(*owner_) ? FactKind::ExactScalar : FactKind::FloatScalar);
  }
  void save_exact(int64_t bits) {
    facts_.push_back(bits);
    note_scalar(FactKind::ExactScalar);
  }
  void save_scalar(const at::Scalar& scalar) {
    cache::append(key_, scalar.type());
    if (scalar.isComplex()) {
      const auto value = scalar.toComplexDouble();
      save_exact(std::bit_cast<int64_t>(value.real()));
      save_exact(std::bit_cast<int64_t>(value.imag()));
    } else if (scalar.isFloatingPoint()) {
      save_double(scalar.toDouble());
    } else {
      save_exact(scalar.isBoolean() ? int64_t{scalar.toBool()} : scalar.toLong());
    }
  }

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void save_constant(T value) { cache::append(key_, value); }
  void save_constant(const std::string& value) {
    cache::append_size(key_, value.size());
    cache::append_bytes(key_, value.data(), value.size());
  }
  void save_constant(const caffe2::TypeMeta& value) { cache::append(key_, value.toScalarType()); }
  void save_constant(const c10::Device& value) {
    cache::append(key_, value.type());
    cache::append(key_, value.index());
  }
  void save_constant(const at::TensorOptions& value) {
    save_constant(value.device());
    save_constant(value.dtype());
    cache::append(key_, value.layout());
    cache::append(key_, value.requires_grad());
    cache::append(key_, value.pinned_memory());
    save_constant(value.memory_format_opt());
  }
  template <class T>
  void save_constant(const std::optional<T>& value) {
    cache::append(key_, value.has_value());
    if (value) save_constant(*value);
  }
  template <class T>
  void save_constant(const std::vector<T>& values) {
    cache::append_size(key_, values.size());
    for (const auto& value : values) save_constant(value);
  }
  void save_constant(const std::vector<bool>& values) {
    cache::append_size(key_, values.size());
    for (const bool value : values) cache::append(key_, value);
  }
  template <class T>
  void save_constant(const c10::OptionalArray<T>& values) {
    save_constant(values.list);
  }
  template <class T, size_t N>
  void save_constant(const std::array<T, N>& values) {
    for (const auto& value : values) save_constant(value);
  }

  void note_scalar(FactKind kind) {
    if (integers != nullptr) [[unlikely]]
      cache::append(key_, facts_.back());
    note(kind, 0);
  }
  void note(FactKind kind, uint32_t dim) {
    if (origins) origins->push_back({kind, call, field_ - 1, dim});
  }

  cache::KeyBytes& key_;
  Facts& facts_;
  std::vector<at::Tensor>& tensors_;
  uint32_t field_ = 0;
  torch::autograd::Node* owner_ = nullptr;

 public:
  /// `owner`: the node that saved the tensors. The caller holds its mutex.
  void begin_node(uint32_t index, torch::autograd::Node& owner) {
    call = index;
    owner_ = &owner;
    field_ = 0;
    opaque_reason = nullptr;
  }
};

}  // namespace hindcast::capture
