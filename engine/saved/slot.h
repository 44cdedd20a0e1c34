#pragma once
// A slot of a checkpoint: metadata of a tensor that the forward saved, for comparison and error messages, and the recomputed tensor.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hindcast::engine {

/// A saved tensor's metadata, without the tensor.
class SavedFacts {
 public:
  explicit SavedFacts(const at::Tensor& tensor);

  /// How `other`, saved by the recomputation, differs; nullopt if it does not.
  std::optional<std::string> difference(const at::Tensor& other) const;
  /// Throws c10::Error if `other` is the forward's tensor itself and was modified in place since.
  void check_version(const at::Tensor& other) const;

 private:
  std::string text() const;

  c10::ScalarType dtype_;
  c10::Device device_;
  std::vector<int64_t> sizes_;
  uint32_t version_;
  // Distinguishes a tensor that lives on outside of the function from a new one at the same address.
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
};

/// A tensor with its version and the current stream when it was saved. Detached, so that the autograd graph does not own itself.
class Versioned {
 public:
  Versioned() = default;
  explicit Versioned(const at::Tensor& tensor);
  bool defined() const { return tensor_.defined(); }
  /// The tensor, safe to use on the current stream. Throws c10::Error if it was modified in place.
  const at::Tensor& checked() const;

 private:
  at::Tensor tensor_;
  uint32_t version_ = 0;
  std::optional<c10::Stream> stream_;
};

struct Slot {
  explicit Slot(const at::Tensor& tensor) : facts(tensor) {}
  SavedFacts facts;
  Versioned recomputed;
  bool is_wanted = true;
};

}  // namespace hindcast::engine
