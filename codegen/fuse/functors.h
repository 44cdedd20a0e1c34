#pragma once
// The table of the device library's functors, from base/pointwise_ops.def. Bodies are made of these.

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace hindcast::codegen {

struct Functor {
  enum class Domain : uint8_t { ANY, NUMBER, FLOAT, COMPLEX };
  enum class Result : uint8_t { SAME, BOOL };
  enum class Cost : uint8_t { CHEAP, DEAR, ANGLE };

  std::string_view name;
  uint8_t operands = 0;
  uint8_t scalars = 0;
  Domain domain = Domain::FLOAT;
  Result result = Result::SAME;
  Cost cost = Cost::DEAR;
};

inline constexpr auto kFunctors = std::to_array<Functor>({
#define HC_ATEN(op, how)
#define HC_OP(functor, operands, scalars, domain, result, cost, ...) \
  {#functor, operands, scalars, Functor::Domain::domain, Functor::Result::result, Functor::Cost::cost},
#include "base/pointwise_ops.def"
});

/// The index of the row with this name; kFunctors.size() if no row has it. Of two rows with the name, that of real numbers; the cost is
/// equal.
constexpr size_t functor_number(std::string_view name) {
  size_t i = 0;
  while (i < kFunctors.size() && kFunctors[i].name != name) ++i;
  return i;
}

/// nullptr if no row has this name.
constexpr const Functor* find_functor(std::string_view name) {
  const size_t number = functor_number(name);
  return number == kFunctors.size() ? nullptr : &kFunctors[number];
}

/// Whether the functor costs less to recompute than to store and to load.
inline bool is_cheap(std::string_view functor) {
  const Functor* row = find_functor(functor);
  return row != nullptr && row->cost == Functor::Cost::CHEAP;
}

/// Whether the functor has two more forms: name_near, for angles near 0, and name_called.
inline bool takes_angle(std::string_view functor) {
  const Functor* row = find_functor(functor);
  return row != nullptr && row->cost == Functor::Cost::ANGLE;
}

/// The name of a functor that has a row; any other name is a compile error.
class FunctorName {
 public:
  consteval FunctorName(const char* name) : name_(name) {  // implicit: builders write names as text
    // Compares an index: with the undefined-behaviour sanitizer, GCC 12 cannot compare pointers in constant expressions.
    if (functor_number(name_) == kFunctors.size()) throw std::invalid_argument("base/pointwise_ops.def has no such functor");
  }
  constexpr FunctorName(const Functor& row) : name_(row.name) {}
  constexpr operator std::string_view() const { return name_; }

 private:
  std::string_view name_;
};

}  // namespace hindcast::codegen
