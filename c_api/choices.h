#pragma once
// The header's numbers as C++'s choices. Each throws std::invalid_argument for another number.

#include "engine/options.h"

#include <cstdint>

namespace hindcast::c_api {

Compiler compiler_of(int32_t number);
int32_t number_of(Dynamic dynamic);
/// `for_functions`: HINDCAST_DYNAMIC_INFERRED is one, too.
Dynamic dynamic_of(int32_t number, bool for_functions);

}  // namespace hindcast::c_api
