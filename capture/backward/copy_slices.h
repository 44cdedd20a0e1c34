#pragma once
// In-place writes to views. LibTorch gives the base a CopySlices node, which runs the write's own node on the view's part of the base's
// gradient.

#include "capture/recorder/libtorch_compat.h"
#include "hindcast/symbols.h"

#include <c10/util/FunctionRef.h>

#include <functional>
#include <vector>

namespace hindcast::capture {

/// The node of the write; nullptr once it is released. `node` is a CopySlices; the caller holds its mutex.
const NodePtr& written_by(const torch::autograd::Node& node);

/// Where a view lies in its base; offsets are in elements of the storage.
struct PieceOfBase {
  struct Geometry {
    std::vector<c10::SymInt> sizes, strides;
    c10::SymInt offset;
  };
  Geometry base, view;
};

/// Reads the geometry of a CopySlices. `next` returns its numbers in order: sizes, strides and offset of the base, then of the view.
PieceOfBase read_piece(const torch::autograd::Node& node, c10::function_ref<c10::SymInt()> next);

/// A CopySlices' fields, base and view, precede those of the write's node.
inline constexpr uint32_t kPieceFields = 2;

/// CopySlices' formula; `write` is the formula of the write's node, from the view's gradient to those of its inputs. Only results with a
/// bit in `needed` are defined.
torch::autograd::variable_list on_piece(const PieceOfBase& piece, const at::Tensor& gradient, const std::vector<bool>& needed,
                                        const std::function<torch::autograd::variable_list(torch::autograd::variable_list)>& write);

}  // namespace hindcast::capture
