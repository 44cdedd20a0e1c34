#pragma once
// What one fused kernel computes for one element: functors of the device library (codegen/device) over loads and scalars.
//
// Names do not exist here, only order: two groups of equal form have equal bodies, whatever graph they came from, and so one
// kernel. Scalars are arguments, never part of the text, so that a changed learning rate or loss scale needs no compile.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace hindcast::codegen {

struct Operand {
  enum class Kind : uint8_t { Load, Scalar, Result };
  Kind kind = Kind::Load;
  uint32_t index = 0;  // into Body::loads, the scalars, Body::ops
  bool operator==(const Operand&) const = default;
};

struct BodyOp {
  std::string_view function;  // a functor of the device library, or one of the two below
  std::vector<Operand> args;
  bool operator==(const BodyOp&) const = default;
};

/// The sum of its operand over a row's elements: from then on a number of the row.
inline constexpr std::string_view kRowSum = "row_sum";
/// The sum of its operand over a run, which is what one channel has of a row: a number of the run, that only sums of runs and sums by
/// channel read.
inline constexpr std::string_view kRunSum = "run_sum";
/// The sum over a row's runs of a number of the run.
inline constexpr std::string_view kSumOfRuns = "sum_of_runs";
/// one_hot(index, value): `value` in the column that `index`, an int64 load, names; 0 in all others.
inline constexpr std::string_view kOneHot = "one_hot";

/// How a load walks along the innermost loop; as it was at capture, checked at every run. Of a row in runs: Still is one number a row,
/// ByRun one a run.
enum class Walk : uint8_t { Dense, Still, ByRun };

struct BodyLoad {
  at::ScalarType type = at::ScalarType::Float;
  Walk walk = Walk::Dense;
  bool operator==(const BodyLoad&) const = default;
};

/// What there is one of for each ... : elements of the domain; runs of a row; rows; columns (the sum over all rows); channels (the sum
/// over the runs of each).
enum class Extent : uint8_t { Element, Run, Row, Columns, Channels };

struct BodyStore {
  Operand value;
  at::ScalarType type = at::ScalarType::Float;
  Extent extent = Extent::Element;
  uint32_t leaves = 0;  // of them the kernel itself may write the gradients, while it makes the values
  bool operator==(const BodyStore&) const = default;
};

struct Body {
  at::ScalarType compute = at::ScalarType::Float;  // arithmetic: Float, Double, ComplexFloat or ComplexDouble
  bool by_rows = false;                            // a still load is a number of the row; sums over rows and columns may occur
  std::vector<BodyLoad> loads;
  uint32_t scalars = 0;
  std::vector<BodyOp> ops;
  std::vector<BodyStore> stores;
  bool operator==(const Body&) const = default;
};

/// Of each op: Element, Run or Row.
std::vector<Extent> extents_of_ops(const Body& body);

}  // namespace hindcast::codegen
