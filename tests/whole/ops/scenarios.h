#pragma once

#include <string>
#include <vector>

#include "tests/whole/ops/op_run.h"

namespace hindcast::tests::ops {

/// Runs that share one graph: the first is a miss, the later ones find it.
struct Scenario {
  std::string name;
  std::vector<Setting> runs;
};

/// What a row is put through: new values, new sizes, operands and root gradients of every layout on one entry, part of the
/// outputs, part of the leaves, hooks. The first dtype gets everything, the others the first scenario.
std::vector<Scenario> scenarios(const Row& row, const RowShape& shape);

c10::ScalarType dtype_of(const std::string& name);

}  // namespace hindcast::tests::ops
