#pragma once
// A C++ program, of LibTorch alone, that runs one kernel's text beside ATen's ops.

#include "capture/graph/graph.h"
#include "codegen/fuse/group.h"

#include <stdexcept>
#include <string>
#include <unordered_map>

namespace hindcast::engine {

/// The group cannot be written as a program.
struct NotWritable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `given`: the group's inputs, of which only types, sizes and strides are used; with the symbols' values at capture.
std::string reproducer_program(const capture::Graph& graph, const codegen::Group& group,
                               const std::unordered_map<uint32_t, at::Tensor>& given);

}  // namespace hindcast::engine
