#pragma once

#include <string>

namespace hindcast::engine {

/// Logs `text` to `aot`: as a warning the first time, then as info.
void warn_once(const std::string& text);

}  // namespace hindcast::engine
