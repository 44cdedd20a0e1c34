#pragma once
// Composite ops of ATen for stand-ins with symbolic sizes. ATen's own read sizes as numbers, so each size would need a program of its own,
// or raise an error for symbolic ones.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace torch {
class Library;
}

namespace hindcast::capture {

/// Above autograd and autocast; LibTorch uses it in its own tests only. Included in a thread's keys while a function is traced.
inline constexpr c10::DispatchKey kSymbolicCompositesKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// Registers the kernels. Called once. Returns false if the key is taken by something else in this process: ATen's ops run then.
bool register_symbolic_composites();

/// The keys of a call for ATen's own kernel.
inline c10::DispatchKeySet below_symbolic_composites(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kSymbolicCompositesKey);
}

/// True if transforms, modes or autocast come first: they call the op again with what they made of the arguments.
bool others_come_first(c10::DispatchKeySet keys);

/// True for a stand-in with symbolic sizes.
bool is_symbolic(const at::Tensor& tensor);

void implement_symbolic_convolution(torch::Library& aten);
void implement_symbolic_matmul(torch::Library& aten);
void implement_symbolic_pooling(torch::Library& aten);
void implement_symbolic_upsampling(torch::Library& aten);

}  // namespace hindcast::capture
