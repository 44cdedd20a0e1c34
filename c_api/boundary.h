#pragma once
// The exception boundary of every function in hindcast_c.h: C++ exceptions become an error code and a text for hindcast_last_error().

#include "hindcast/hindcast_c.h"

#include <cxxabi.h>

#include <string>
#include <string_view>

namespace hindcast::c_api {

/// Returns the error code of the exception being handled. Stores its text, prefixed by the function's name.
int32_t keep_error(const char* function) noexcept;

/// Throws std::invalid_argument if `condition` is false.
void require(bool condition, std::string_view text);

/// A copy for the caller, who frees it with hindcast_free_text().
char* new_text(const std::string& text);

/// Runs `body`. Only a forced unwind (thread cancellation) passes through.
template <class Body>
int32_t at_boundary(const char* function, const Body& body) {
  try {
    body();
    return HINDCAST_OK;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return keep_error(function);
  }
}

}  // namespace hindcast::c_api
