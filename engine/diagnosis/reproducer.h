#pragma once
// Writes what Options::verify rejected as a folder that can be sent: it contains no values of the user's, only shapes and ranges.
//
//   reason.txt    what was wrong, and the versions
//   graph.txt     Graph::print()
//   inputs.txt    type, sizes, strides and range of each input tensor
//   kernel.cpp    the kernel's source, with the device library's headers in codegen/device/     (only if a kernel was wrong)
//   main.cpp      runs it and ATen's ops on random tensors of these shapes; its head comment says how to compile it

#include "codegen/fuse/group.h"
#include "hindcast/graph.h"

#include <string>
#include <unordered_map>

namespace hindcast::engine {

struct Refused {
  const capture::Graph& graph;
  const std::unordered_map<uint32_t, at::Tensor>& given;  // by ValueId; for a kernel at least inputs_of(group)
  const std::string& reason;
  const codegen::Group* group = nullptr;  // whose kernel is wrong; nullptr if the graph itself is
};

/// Creates a folder in hindcast-reproducers/ below $HINDCAST_REPRODUCER_DIR, or below the kernel store's folder if that is not set.
/// Returns its path; "" if there is no such place (HINDCAST_REPRODUCER_DIR=0, no store), after 20 reproducers of one process, or if it
/// cannot be written, which is logged as a warning. Throws nothing.
std::string write_reproducer(const Refused& refused) noexcept;

}  // namespace hindcast::engine
