#include "base/check.h"

namespace hindcast::base {

void check_failed(const char* file, int line, const char* condition, const std::string& text) {
  throw InternalError(
      format("hindcast: {}{}check '{}' failed at {}:{}. This is a bug in hindcast, not in your program; "
             "please report it with this text.",
             text, text.empty() ? "" : "; ", condition, file, line));
}

void unsupported(const std::string& text) { throw Unsupported(text); }

}  // namespace hindcast::base
