#pragma once
// What the forward saved, in the words of an error, and the place for what takes the place of the saved tensor later.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hindcast::engine {

/// What a saved tensor looks like, without the tensor.
class SavedFacts {
 public:
  explicit SavedFacts(const at::Tensor& tensor);

  /// Why `other`, saved by the recomputation, is not the same; nullopt: it may be.
  std::optional<std::string> difference(const at::Tensor& other) const;
  /// Throws c10::Error if `other` is the tensor of the forward and was modified in place since.
  void check_version(const at::Tensor& other) const;

 private:
  std::string text() const;

  c10::ScalarType dtype_;
  c10::Device device_;
  std::vector<int64_t> sizes_;
  uint32_t version_;
  // Tells a tensor that lives on outside of the function from one that was made anew in its place.
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
};

/// A tensor together with its version when it was saved, and the stream of that moment. Without history, so that autograd's graph does not
/// hold itself.
class Versioned {
 public:
  Versioned() = default;
  explicit Versioned(const at::Tensor& tensor);
  bool defined() const { return tensor_.defined(); }
  /// For the current stream. Throws c10::Error if the tensor was modified in place.
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
