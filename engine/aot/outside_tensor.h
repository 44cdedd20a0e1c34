#pragma once
// A tensor that a function reads from outside of its arguments.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <utility>

namespace hindcast::engine {

class OutsideTensor {
 public:
  /// `has_owner`: whoever owns it says when it is gone, and with it the programs. So they do not keep it alive.
  OutsideTensor(at::Tensor tensor, bool has_owner) {
    if (has_owner) {
      known_ = Weak(tensor.getIntrusivePtr());
    } else {
      kept_ = std::move(tensor);
    }
  }

  /// Undefined once it is gone.
  at::Tensor get() const { return kept_.defined() ? kept_ : at::Tensor(known_.lock()); }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  at::Tensor kept_;
  Weak known_{c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
};

}  // namespace hindcast::engine
