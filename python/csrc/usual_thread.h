#pragma once
// Checks for thread modes under which a call from Python must take the slow path, in Python.

#include "python/csrc/objects.h"

namespace hindcast::python {

/// True if there is no dispatch mode, no torch-function mode except a default device, no torch.func transform, no trace, and no PyTorch
/// compiled autograd. Call it with the GIL.
bool is_usual_thread();

/// The torch.device set by torch.set_default_device() or `with torch.device()`; empty if no device is set, or if other torch-function modes
/// are active.
Reference default_device();

/// Compares two results of default_device().
bool are_equal_devices(const Reference& a, const Reference& b);

}  // namespace hindcast::python
