#pragma once
// Writes a body as a struct: the part of a kernel that differs from body to body. The loops around it are the skeletons of
// codegen/device/skeletons; skeletons/body.h says what the struct has.

#include "codegen/fuse/body.h"
#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/row_passes.h"

#include <string>

namespace hindcast::codegen {

/// What a backend's skeletons expect of the struct.
struct BodyStyle {
  const CostModel& costs;
  RowPasses::IsCheap* is_cheap = nullptr;  // of bodies by rows, see RowPasses
  bool by_segments = false;                // of bodies by rows: it has functions for numbers of segments
  bool by_blocks = false;                  // it has functions that check the angles of a block (skeletons/cpu/operands.h)
  bool has_short_rows = false;             // of bodies by rows: it has the numbers of several rows (skeletons/cpu/short_rows.h)
};

/// `struct <name> {...};`
std::string body_struct(const Body& body, const std::string& name, const BodyStyle& style);

}  // namespace hindcast::codegen
