// Compile-time checks that each row of base/pointwise_ops.def has a functor in the device library, with the row's number of arguments and
// result type. Nothing here runs.

#include "codegen/fuse/functors.h"

#include "codegen/device/ops.h"

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace hindcast::codegen {
namespace {

// A representative type of each domain. For ANY and NUMBER, a type that kernels compute with.
template <Functor::Domain domain, bool wide>
auto type_of_domain() {
  using enum Functor::Domain;
  if constexpr (domain == COMPLEX) {
    return std::type_identity<std::conditional_t<wide, device::complex128, device::complex64>>();
  } else {
    return std::type_identity<std::conditional_t<wide, double, float>>();
  }
}

template <class T, size_t>
T argument();

#define HC_ATEN(op, how)
#define HC_OP(functor, operands, scalars, domain, result, cost, ...)                                                          \
  static_assert(                                                                                                              \
      []<bool... wide>(std::integer_sequence<bool, wide...>) {                                                                \
        return ([]<class T, size_t... i>(std::type_identity<T>, std::index_sequence<i...>) {                                  \
          using Expected = std::conditional_t<Functor::Result::result == Functor::Result::BOOL, bool, T>;                     \
          return std::same_as<decltype(device::functor<T>(argument<T, i>()...)), Expected>;                                   \
        }(decltype(type_of_domain<Functor::Domain::domain, wide>())(), std::make_index_sequence<(operands) + (scalars)>()) && \
                ...);                                                                                                         \
      }(std::integer_sequence<bool, false, true>()),                                                                          \
      "codegen/device: " #functor " is not what its row in base/pointwise_ops.def says");
#include "base/pointwise_ops.def"

// The other forms of a functor, which kernels name with a suffix.
#define HC_ATEN(op, how)
#define HC_OP(functor, operands, scalars, domain, result, cost, ...) HC_FORMS_##cost(functor)
#define HC_FORMS_CHEAP(functor)
#define HC_FORMS_DEAR(functor)
#define HC_FORMS_ANGLE(functor)                                               \
  static_assert(std::same_as<decltype(device::functor##_near(0.0)), double>); \
  static_assert(std::same_as<decltype(device::functor##_called(0.0)), double>);
#include "base/pointwise_ops.def"

// find_functor() returns the first row of a name.
constexpr bool rows_of_one_name_cost_the_same() {
  return std::all_of(kFunctors.begin(), kFunctors.end(),
                     [](const Functor& functor) { return find_functor(functor.name)->cost == functor.cost; });
}
static_assert(rows_of_one_name_cost_the_same());

}  // namespace
}  // namespace hindcast::codegen
