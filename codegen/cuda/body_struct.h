#pragma once
// Writes a body as a struct: the part of a kernel that differs from body to body. The loops around it are the skeletons of
// codegen/device/skeletons; skeletons/body.h says what the struct has.

#include "codegen/fuse/body.h"
#include "codegen/fuse/row_passes.h"

#include <string>

namespace hindcast::codegen::cuda {

/// Of bodies by rows.
struct RowStyle {
  RowPasses::IsCheap* is_cheap = nullptr;  // see RowPasses
  bool by_segments = false;                // the skeleton has functions for numbers of segments (skeletons/segments.h)
};

/// `struct <name> {...};`
std::string body_struct(const Body& body, const std::string& name, const RowStyle& style = {});

}  // namespace hindcast::codegen::cuda
