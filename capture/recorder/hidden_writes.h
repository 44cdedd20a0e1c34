#pragma once
// Ops that write to an argument besides returning results, whether their schema says so or not.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

namespace hindcast::capture {

/// The functional op that returns the new contents, after the results of the op that writes.
struct HiddenWrite {
  c10::OperatorHandle functional;
  std::vector<uint32_t> written;  // arguments of both, in the order in which `functional` returns them
  uint32_t results = 0;           // number of results of the op that writes
  bool makes_contiguous = false;  // its result is contiguous, where that of `functional` has the strides of the first argument
};

/// nullopt: the call has no such write.
std::optional<HiddenWrite> hidden_write(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs);

}  // namespace hindcast::capture
