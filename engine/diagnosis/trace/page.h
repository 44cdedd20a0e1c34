#pragma once

#include <string_view>

namespace hindcast::engine {

/// The beginning of a trace file: page.html with the styles and scripts of this folder inlined at build time.
std::string_view trace_page();

}  // namespace hindcast::engine
