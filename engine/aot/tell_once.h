#pragma once

#include <string>

namespace hindcast::engine {

/// To the log `aot`: as a warning the first time, then as info.
void tell_once(const std::string& text);

}  // namespace hindcast::engine
