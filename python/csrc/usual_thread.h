#pragma once
// Modes of a thread under which a call from Python takes the way of Python's own code.

#include "python/csrc/objects.h"

namespace hindcast::python {

/// No mode of dispatch or of torch functions but a default device, no transform of torch.func, trace, or PyTorch's compiled autograd. Call it
/// with the GIL.
bool is_usual_thread();

/// What torch.set_default_device() or `with torch.device()` has set: a torch.device. Null: nothing, or there are other modes of torch functions.
Reference default_device();

/// Of two results of default_device().
bool are_equal_devices(const Reference& a, const Reference& b);

}  // namespace hindcast::python
