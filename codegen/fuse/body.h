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
  std::string_view function;  // a functor of the device library
  std::vector<Operand> args;
  bool operator==(const BodyOp&) const = default;
};

/// How a load walks along the innermost loop; as it was at capture, checked at every run.
enum class Walk : uint8_t { Dense, Still };

struct BodyLoad {
  at::ScalarType type = at::ScalarType::Float;
  Walk walk = Walk::Dense;
  bool operator==(const BodyLoad&) const = default;
};

struct Body {
  at::ScalarType compute = at::ScalarType::Float;  // of all results: Float or Double
  std::vector<BodyLoad> loads;
  uint32_t scalars = 0;
  std::vector<BodyOp> ops;
  std::vector<Operand> stores;
  bool operator==(const Body&) const = default;
};

}  // namespace hindcast::codegen
