#pragma once
// Errors, by who is to blame: Unsupported is no one's fault, and the caller falls back; InternalError is a bug in hindcast. User errors are
// std::invalid_argument, or the stock engine's own exceptions.

#include "base/format.h"

#include <stdexcept>
#include <string>

namespace hindcast {

/// hindcast cannot handle this case. Never reaches a user: the caller catches it and falls back to what always works.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A bug in hindcast. The text asks for a report.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace base {

[[noreturn, gnu::cold]] void check_failed(const char* file, int line, const char* condition, const std::string& text = {});
[[noreturn, gnu::cold]] void unsupported(const std::string& text);

}  // namespace base
}  // namespace hindcast

/// HC_CHECK(condition) or HC_CHECK(condition, "{} of {}", a, b): throws InternalError when the condition is false. The text
/// is built only then.
#define HC_CHECK(condition, ...)                                                                                          \
  do {                                                                                                                    \
    if (!(condition)) [[unlikely]]                                                                                        \
      ::hindcast::base::check_failed(__FILE__, __LINE__, #condition __VA_OPT__(, ::hindcast::base::format(__VA_ARGS__))); \
  } while (false)

/// HC_UNSUPPORTED("{}: {}", what, why): throws Unsupported.
#define HC_UNSUPPORTED(...) ::hindcast::base::unsupported(::hindcast::base::format(__VA_ARGS__))
