#pragma once
// Who is to blame is the first thing an error says: Unsupported is nobody's fault and makes the caller fall back,
// InternalError is ours. What the user did wrong is std::invalid_argument, or the stock engine's own error.

#include "base/format.h"

#include <stdexcept>
#include <string>

namespace hindcast {

/// This cannot be done our way. Never reaches a user: whoever calls catches it and takes the way that always works.
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
