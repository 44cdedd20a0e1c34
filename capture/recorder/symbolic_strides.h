#pragma once
// Strides of stand-ins in terms of symbolic sizes.

#include "capture/recorder/tracing_tensor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/SymInt.h>
#include <c10/util/ArrayRef.h>

#include <vector>

namespace hindcast::capture {

/// For a tensor that is dense up to order and stride-0 dimensions; empty for any other. `sizes_now` and `strides`: as in the trace. Which
/// dimensions have size 1 affects the order, so relations fix it.
std::vector<c10::SymInt> symbolic_strides(c10::IntArrayRef sizes_now, c10::IntArrayRef strides, const std::vector<c10::SymInt>& sizes);

/// A part that is the whole of its dimension may be dense where another part is not: records which of the two it is, as a relation of the
/// sizes. `inputs`: those of the view op.
void note_whether_whole(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, const TracingTensor& whole,
                        const TracingTensor& part);

}  // namespace hindcast::capture
