#include "c_api/boundary.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

namespace hindcast::c_api {
namespace {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

void keep(const char* function, const char* text) noexcept {
  try {
    last_error() = std::string(function) + ": " + text;
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
}

}  // namespace

int32_t keep_error(const char* function) noexcept {
  try {
    throw;
  } catch (const std::invalid_argument& error) {
    keep(function, error.what());
    return HINDCAST_INVALID_ARGUMENT;
  } catch (const c10::Error& error) {
    keep(function, error.what_without_backtrace());
  } catch (const std::exception& error) {
    keep(function, error.what());
  } catch (...) {
    keep(function, "something was thrown that is no std::exception");
  }
  return HINDCAST_FAILED;
}

void require(bool condition, std::string_view text) {
  if (!condition) throw std::invalid_argument(std::string(text));
}

char* new_text(const std::string& text) {
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace hindcast::c_api

extern "C" {

const char* hindcast_last_error() { return hindcast::c_api::last_error().c_str(); }
void hindcast_free_text(char* text) { std::free(text); }
}
