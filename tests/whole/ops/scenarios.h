#pragma once

#include <string>
#include <vector>

#include "tests/whole/ops/op_run.h"

namespace hindcast::tests::ops {

/// Runs that share one graph: the first is a miss, the later ones are hits.
struct Scenario {
  std::string name;
  std::vector<Setting> runs;
};

/// The scenarios of a row: new values, new sizes, operands and root gradients of every layout in one cache entry, some of the outputs, some
/// of the leaves, hooks. The first dtype gets all of them, the others the first one.
std::vector<Scenario> scenarios(const Row& row, const RowShape& shape);

c10::ScalarType dtype_of(const std::string& name);

}  // namespace hindcast::tests::ops
