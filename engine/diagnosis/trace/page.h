#pragma once

#include <string_view>

namespace hindcast::engine {

/// What a trace's file starts with: page.html with the styles and scripts beside it, as they were when hindcast was built.
std::string_view trace_page();

}  // namespace hindcast::engine
