#pragma once
// What Options::verify refused, as a folder that can be sent: it holds no values of the user's, only shapes and ranges.
//
//   reason.txt    what was wrong, and the versions
//   graph.txt     Graph::print()
//   inputs.txt    type, sizes, strides and range of each tensor that was given
//   kernel.cpp    the kernel's text, with the device library's headers below codegen/device/    (only where a kernel was wrong)
//   main.cpp      runs it on random tensors of these shapes, and ATen's ops beside it; its head says how to compile it

#include "capture/graph/graph.h"
#include "codegen/fuse/group.h"

#include <string>
#include <unordered_map>

namespace hindcast::engine {

struct Refused {
  const capture::Graph& graph;
  const std::unordered_map<uint32_t, at::Tensor>& given;  // by ValueId; for a kernel at least inputs_of(group)
  const std::string& reason;
  const codegen::Group* group = nullptr;  // whose kernel is wrong; null: the graph itself is
};

/// A new folder below $HINDCAST_REPRODUCER_DIR, or below the kernel store's folder where that is not set, in
/// hindcast-reproducers/. Returns its path; "" when there is no such place (HINDCAST_REPRODUCER_DIR=0, no store), after 20 of one
/// process, or when it cannot be written, which is a warning. Throws nothing.
std::string write_reproducer(const Refused& refused) noexcept;

}  // namespace hindcast::engine
