#pragma once

#include <string>
#include <vector>

#include "tests/whole/ops/arguments.h"
#include "tests/whole/ops/setting.h"
#include "tests/whole/ops/table.h"

namespace hindcast::tests::ops {

/// Runs a row once under a setting: builds the operands, calls the op, runs the backward. Returns what both engines must agree on: the
/// outputs, what the hooks saw, and the gradients of all leaves. Throws what LibTorch throws.
std::vector<at::Tensor> run_row(const Row& row, const Setting& setting, const OpCaller& caller = {});

/// The form of a row's first run, which decides what scenarios make sense for it.
struct RowShape {
  std::vector<std::string> nodes;  // the names of all autograd nodes behind the outputs
  size_t leaves = 0;
  size_t outputs = 0;  // differentiable ones
};

/// Runs only the forward.
RowShape shape_of(const Row& row, const Setting& setting);

}  // namespace hindcast::tests::ops
