#pragma once

#include <string>
#include <string_view>

namespace hindcast::engine {

/// Logs `text` to `aot`: as a warning the first time, then as info.
void warn_once(const std::string& text);
/// Counts in Stats::eager_functions, and logs in the same way, why a compiled function runs eagerly in this call and all later ones.
void note_eager(std::string_view reason);
/// The same for a reason that may not hold for the next call.
void note_eager_call(std::string_view reason);

}  // namespace hindcast::engine
