#pragma once
// A tensor that a function reads and that is no argument, such as a module's parameter.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <utility>

namespace hindcast::engine {

class OutsideTensor {
 public:
  /// `has_owner`: its owner reports when it is gone, and the programs are then dropped, so they need not keep it alive.
  OutsideTensor(at::Tensor tensor, bool has_owner) {
    if (has_owner) {
      known_ = Weak(tensor.getIntrusivePtr());
    } else {
      kept_ = std::move(tensor);
    }
  }

  bool is(const at::Tensor& tensor) const {
    const c10::TensorImpl* const own = kept_.defined() ? kept_.unsafeGetTensorImpl() : known_._unsafe_get_target();
    return tensor.defined() && own == tensor.unsafeGetTensorImpl();
  }
  /// Undefined once the tensor has been freed.
  at::Tensor get() const { return kept_.defined() ? kept_ : at::Tensor(known_.lock()); }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  at::Tensor kept_;
  Weak known_{c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
};

}  // namespace hindcast::engine
