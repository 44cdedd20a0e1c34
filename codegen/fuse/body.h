#pragma once
// What one fused kernel computes for one element: functors of the device library (codegen/device) over loads and scalars.
//
// A body has no names, only order: two groups of the same form have equal bodies, whatever graphs they came from, and so share one
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

inline bool is_of_16_bits(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

struct Operand {
  enum class Kind : uint8_t { Load, Scalar, Result, Product };
  Kind kind = Kind::Load;
  uint32_t index = 0;  // into Body::loads, the scalars, Body::ops; Product: 0
  bool operator==(const Operand&) const = default;
};

/// Reduces many numbers to one; NaN propagates. Reductions over all rows are part of a store instead (BodyStore::over_rows).
struct Reduction {
  enum class Kind : uint8_t {
    Sum,
    Max,
    Min,
    Mean,  // with M2 of the same operand: Welford's pair, computed in one pass over the operand
    M2,    // the sum of squared distances from the mean: n times the variance for n numbers
    // With Powers of the same operand: another pair that one pass computes. Not in groups; a backend makes it of a Max and a Sum.
    Largest,
    Powers,  // the sum of exp(operand - Largest)
  };
  enum class Over : uint8_t {
    Row,       // over a row's elements: one number per row
    Segment,   // over a segment's elements: one number per segment, which only reductions over segments and over rows read
    Segments,  // over a row's segments, where the operand has one number per segment: one number per row
  };
  Kind kind = Kind::Sum;
  Over over = Over::Row;
  bool operator==(const Reduction&) const = default;
};

struct BodyOp {
  enum class Kind : uint8_t {
    Functor,    // a functor of the device library, applied to `args`
    Reduction,  // reduces its one operand
    OneHot,     // (index, value[, other]): `value` in the column whose number `index`, an int64 load, gives; `other` or 0 elsewhere
  };
  std::string_view function;  // Functor: its name
  std::vector<Operand> args;
  Kind kind = Kind::Functor;
  Reduction reduction = {};  // Reduction
  bool operator==(const BodyOp&) const = default;

  bool reduces(Reduction::Over over) const { return kind == Kind::Reduction && reduction.over == over; }
  /// Whether the result is one number per row, known only when the whole row has been read.
  bool reduces_row() const { return reduces(Reduction::Over::Row) || reduces(Reduction::Over::Segments); }
};

/// How a load varies along the innermost loop: as it did at capture, and checked at every call. For rows of several segments, Broadcast is
/// one number per row and PerSegment one per segment.
enum class AccessPattern : uint8_t { Dense, Broadcast, PerSegment };

struct BodyLoad {
  at::ScalarType type = at::ScalarType::Float;
  AccessPattern pattern = AccessPattern::Dense;
  bool counts = false;      // a result of hindcast::counters: each element is one more than the previous one along the innermost loop
  bool is_checked = false;  // indices of columns: a call throws if one is not less than the number of columns. CPU only
  bool operator==(const BodyLoad&) const = default;
};

/// What a value has one number for: each element of the domain; each segment of a row (one channel's part of the row); each row; each
/// column (reduced over all rows); each channel (reduced over the channel's segments in all rows).
enum class Extent : uint8_t { Element, Segment, Row, Columns, Channels };

struct BodyStore {
  Operand value;
  at::ScalarType type = at::ScalarType::Float;
  Extent extent = Extent::Element;
  uint32_t leaves = 0;  // leaves whose gradients the kernel may write while it computes the values
  /// Columns and Channels: the reduction over all rows. An M2 of columns comes with the Mean of the same value; channels have neither.
  Reduction::Kind over_rows = Reduction::Kind::Sum;
  bool operator==(const BodyStore&) const = default;

  bool is_over_rows() const { return extent == Extent::Columns || extent == Extent::Channels; }
};

/// A matrix product that the kernel computes; its elements are an operand of the body.
struct BodyProduct {
  at::ScalarType type = at::ScalarType::Float;
  bool is_a_transposed = false, is_b_transposed = false;  // column-major in memory instead of row-major
  bool operator==(const BodyProduct&) const = default;
};

/// Rows with fewer elements are short: a CPU kernel vectorises over such rows instead of over their elements.
inline constexpr int64_t kShortRow = 16;

struct Body {
  at::ScalarType compute = at::ScalarType::Float;  // arithmetic: Float, Double, ComplexFloat or ComplexDouble
  bool by_rows = false;                            // a Broadcast load has one number per row; reductions may occur
  bool has_short_rows = false;                     // at capture: fewer than kShortRow elements
  bool of_sets = false;                            // runs on sets of tensors with the same layout (codegen/kernel/foreach_sets.h)
  std::optional<BodyProduct> product;              // if there is one, all stores are of Extent::Element
  std::vector<BodyLoad> loads;
  uint32_t scalars = 0;
  std::vector<BodyOp> ops;
  std::vector<BodyStore> stores;
  bool operator==(const Body&) const = default;
};

/// A name for logs: a functor's name, `row_sum`, `segment_max`.
std::string name_of(const BodyOp& op);
/// Mean or M2: half of Welford's pair.
inline bool is_of_moments(Reduction::Kind kind) { return kind == Reduction::Kind::Mean || kind == Reduction::Kind::M2; }
/// Largest or Powers: half of a softmax's pair.
inline bool is_of_powers(Reduction::Kind kind) { return kind == Reduction::Kind::Largest || kind == Reduction::Kind::Powers; }
/// For one op of a pair: the earlier op of the pair, which has the accumulator of both. For any other op: `op`.
size_t leader_of_pair(const Body& body, size_t op);
/// Whether a store over rows is a Mean or M2.
bool has_moments_over_rows(const Body& body);
/// For a store that is a Mean over rows: the store of the M2 of the same value.
std::optional<size_t> m2_beside(const Body& body, size_t store);
/// By op: Element, Segment or Row.
std::vector<Extent> extents_of_ops(const Body& body);

}  // namespace hindcast::codegen
