#include "capture/recorder/symbolic_composites.h"

#include "capture/recorder/recorder.h"

#include <ATen/ops/detach_ops.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

namespace hindcast::capture {

bool others_come_first(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet kOthers({c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::PythonDispatcher,
                                         c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});
  return keys.has_any(kOthers) || keys.has_any(c10::autocast_dispatch_keyset);
}

bool is_symbolic(const at::Tensor& tensor) {
  const TracingTensor* const traced = TracingTensor::get(tensor);
  return traced != nullptr && traced->symbolic;
}

// Autograd's kernel calls nothing below it.
static at::Tensor& detach_in_place(c10::DispatchKeySet keys, at::Tensor& self) {
  Recorder* const recorder = Recorder::current();
  if (recorder != nullptr && TracingTensor::get(self) != nullptr) recorder->begins_detach(self);
  return at::_ops::detach_::redispatch(below_symbolic_composites(keys), self);
}

bool register_symbolic_composites() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kSymbolicCompositesKey)) return false;
  auto* const others = new torch::Library(torch::Library::IMPL, "_", kSymbolicCompositesKey, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  auto* const aten = new torch::Library(torch::Library::IMPL, "aten", kSymbolicCompositesKey, __FILE__, __LINE__);
  aten->impl("detach_", TORCH_FN(detach_in_place));
  implement_symbolic_convolution(*aten);
  implement_symbolic_matmul(*aten);
  implement_symbolic_pooling(*aten);
  implement_symbolic_upsampling(*aten);
  return true;
}

}  // namespace hindcast::capture
