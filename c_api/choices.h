#pragma once
// Converts the header's enum numbers to C++ and back. Throws std::invalid_argument for an unknown number.

#include "hindcast/options.h"

#include <cstdint>

namespace hindcast::c_api {

Compiler compiler_of(int32_t number);
int32_t number_of(Dynamic dynamic);
/// `for_functions`: HINDCAST_DYNAMIC_INFERRED is valid, too.
Dynamic dynamic_of(int32_t number, bool for_functions);

}  // namespace hindcast::c_api
