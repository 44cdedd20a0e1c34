#include "c_api/choices.h"

#include "c_api/boundary.h"

#include <string>

namespace hindcast::c_api {

Compiler compiler_of(int32_t number) {
  switch (number) {
    case HINDCAST_COMPILER_DEFAULT:
      return {};
    case HINDCAST_COMPILER_FUSED:
      return compilers::fused();
    case HINDCAST_COMPILER_EAGER:
      return compilers::eager();
    case HINDCAST_COMPILER_FUSED_THROUGH_ATEN:
      return compilers::fused_through_aten();
    default:
      break;
  }
  require(false, "compiler is " + std::to_string(number) + "; expected a HINDCAST_COMPILER_");
  return {};
}

int32_t number_of(Dynamic dynamic) {
  switch (dynamic) {
    case Dynamic::Automatic:
      return HINDCAST_DYNAMIC_AUTOMATIC;
    case Dynamic::Never:
      return HINDCAST_DYNAMIC_NEVER;
    case Dynamic::Inferred:
      break;
  }
  return HINDCAST_DYNAMIC_INFERRED;
}

Dynamic dynamic_of(int32_t number, bool for_functions) {
  if (number == HINDCAST_DYNAMIC_AUTOMATIC) return Dynamic::Automatic;
  if (number == HINDCAST_DYNAMIC_NEVER) return Dynamic::Never;
  require(number == HINDCAST_DYNAMIC_INFERRED && for_functions, "dynamic is " + std::to_string(number) +
                                                                    "; expected HINDCAST_DYNAMIC_AUTOMATIC or HINDCAST_DYNAMIC_NEVER" +
                                                                    (for_functions ? " or HINDCAST_DYNAMIC_INFERRED" : ""));
  return Dynamic::Inferred;
}

}  // namespace hindcast::c_api
