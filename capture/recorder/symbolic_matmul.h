#pragma once
// ATen's matmul for stand-ins with symbolic sizes. ATen's own reads sizes as numbers, so each size would need a program of its own.

#include <c10/core/DispatchKey.h>

namespace hindcast::capture {

/// Above autograd and autocast; LibTorch uses it in its own tests only. Included in a thread's keys while a function is traced.
inline constexpr c10::DispatchKey kSymbolicMatmulKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Registers the kernel. Called once. Returns false if the key is taken by something else in this process: ATen's matmul runs then.
bool register_symbolic_matmul();

}  // namespace hindcast::capture
