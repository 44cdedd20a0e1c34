#pragma once
// Writes a LibTorch program that compares one kernel's text with ATen's ops: kernel.cpp, the device library, main.cpp.

#include "codegen/kernel/backend.h"

namespace hindcast::codegen::cpu {

/// As Backend::reproducer(), with the symbols' values at capture.
std::vector<ProgramFile> reproducer(const capture::Graph& graph, const Group& group, const std::unordered_map<uint32_t, at::Tensor>& given);

}  // namespace hindcast::codegen::cpu
