#pragma once
// What every function of hindcast_c.h does at its end: C++'s exceptions become a number, and a text for hindcast_last_error().

#include "c_api/hindcast_c.h"

#include <cxxabi.h>

#include <string>
#include <string_view>

namespace hindcast::c_api {

/// The number of the exception that is being handled. Keeps its text, behind the name of the function.
int32_t keep_error(const char* function) noexcept;

/// Throws std::invalid_argument where `condition` is false.
void require(bool condition, std::string_view text);

/// A copy for the caller, who frees it by hindcast_free_text().
char* new_text(const std::string& text);

/// Runs `body`. Lets through only what ends a thread.
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
