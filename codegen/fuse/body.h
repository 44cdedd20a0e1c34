#pragma once
// What one fused kernel computes for one element: functors of the device library (codegen/device) over loads and scalars.
//
// Names do not exist here, only order: two groups of equal form have equal bodies, whatever graph they came from, and so one
// kernel. Scalars are arguments, never part of the text, so that a changed learning rate or loss scale needs no compile.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hindcast::codegen {

/// Floating point numbers that kernels compute with.
inline bool is_float(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}

struct Operand {
  enum class Kind : uint8_t { Load, Scalar, Result, Product };
  Kind kind = Kind::Load;
  uint32_t index = 0;  // into Body::loads, the scalars, Body::ops; Product: 0
  bool operator==(const Operand&) const = default;
};

/// Makes one number of many, NaN if one of them is. Over all rows, a store does (BodyStore::over_rows).
struct Reduction {
  enum class Kind : uint8_t {
    Sum,
    Max,
    Min,
    Mean,  // with M2 of the same operand: Welford's pair, which one pass over the operand makes
    M2,    // the sum of squared distances from the mean: of n numbers n times the variance
    // With Powers of the same operand: a pair that one pass makes, too. No group has it, it is what a backend makes of a Max and a Sum.
    Largest,
    Powers,  // the sum of exp(operand - Largest)
  };
  enum class Over : uint8_t {
    Row,       // a row's elements: gives a number of the row
    Segment,   // a segment's elements: gives a number of the segment, which only reductions over segments and over rows read
    Segments,  // a row's segments, of each of which the operand is a number: gives a number of the row
  };
  Kind kind = Kind::Sum;
  Over over = Over::Row;
  bool operator==(const Reduction&) const = default;
};

struct BodyOp {
  enum class Kind : uint8_t {
    Functor,    // of the device library, applied to `args`
    Reduction,  // of its one operand
    OneHot,     // (index, value): `value` in the column that `index`, an int64 load, names; 0 in all others
  };
  std::string_view function;  // Functor: its name
  std::vector<Operand> args;
  Kind kind = Kind::Functor;
  Reduction reduction = {};  // Reduction
  bool operator==(const BodyOp&) const = default;

  bool reduces(Reduction::Over over) const { return kind == Kind::Reduction && reduction.over == over; }
  /// Gives a number of the row that is known once all of the row was read.
  bool reduces_row() const { return reduces(Reduction::Over::Row) || reduces(Reduction::Over::Segments); }
};

/// How a load lies along the innermost loop; as it was at capture, checked at every call. Of a row of several segments: Still is one number
/// a row, PerSegment one a segment.
enum class AccessPattern : uint8_t { Dense, Still, PerSegment };

struct BodyLoad {
  at::ScalarType type = at::ScalarType::Float;
  AccessPattern pattern = AccessPattern::Dense;
  bool counts = false;  // of hindcast::counters: along the innermost loop, each element is one more than the one before it
  bool operator==(const BodyLoad&) const = default;
};

/// What there is one of for each ... : elements of the domain; segments of a row, which are what one channel has of it; rows; columns
/// (reduced over all rows); channels (reduced over the segments of each).
enum class Extent : uint8_t { Element, Segment, Row, Columns, Channels };

struct BodyStore {
  Operand value;
  at::ScalarType type = at::ScalarType::Float;
  Extent extent = Extent::Element;
  uint32_t leaves = 0;  // of them the kernel itself may write the gradients, while it makes the values
  /// Columns and Channels: the values of all rows become one by it. An M2 of columns stands beside the Mean of the same value; channels
  /// have neither.
  Reduction::Kind over_rows = Reduction::Kind::Sum;
  bool operator==(const BodyStore&) const = default;

  bool is_over_rows() const { return extent == Extent::Columns || extent == Extent::Channels; }
};

/// A matrix product that the kernel computes itself: its elements are an operand of the body.
struct BodyProduct {
  at::ScalarType type = at::ScalarType::Float;
  bool is_a_transposed = false, is_b_transposed = false;  // in memory, a column's elements follow each other instead of a row's
  bool operator==(const BodyProduct&) const = default;
};

struct Body {
  at::ScalarType compute = at::ScalarType::Float;  // arithmetic: Float, Double, ComplexFloat or ComplexDouble
  bool by_rows = false;                            // a still load is a number of the row; reductions may occur
  bool of_sets = false;                            // it runs on sets of tensors that lie alike (codegen/kernel/foreach_sets.h)
  std::optional<BodyProduct> product;              // then all results are of elements
  std::vector<BodyLoad> loads;
  uint32_t scalars = 0;
  std::vector<BodyOp> ops;
  std::vector<BodyStore> stores;
  bool operator==(const Body&) const = default;
};

/// For people: a functor's name, `row_sum`, `segment_max`.
std::string name_of(const BodyOp& op);
/// Mean or M2: half of Welford's pair.
inline bool is_of_moments(Reduction::Kind kind) { return kind == Reduction::Kind::Mean || kind == Reduction::Kind::M2; }
/// Largest or Powers: half of a softmax's pair.
inline bool is_of_powers(Reduction::Kind kind) { return kind == Reduction::Kind::Largest || kind == Reduction::Kind::Powers; }
/// Of half of a pair, the first half over the same of the same operand, which has the accumulator of both. Of others itself.
size_t leader_of_pair(const Body& body, size_t op);
/// A result over rows is one of moments.
bool has_moments_over_rows(const Body& body);
/// Of a Mean over rows: the store of the M2 of the same value.
std::optional<size_t> m2_beside(const Body& body, size_t store);
/// Of each op: Element, Segment or Row.
std::vector<Extent> extents_of_ops(const Body& body);

}  // namespace hindcast::codegen
