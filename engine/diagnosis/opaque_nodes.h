#pragma once

#include <string>
#include <string_view>

namespace hindcast::engine {

/// Counts a node that was captured as a call of itself. The first node of TorchScript's executor is logged as a warning that says what to do.
void tell_opaque_node(const std::string& name, const std::string& reason);

/// For such nodes, what the program can do about them; else empty. One sentence, for logs and report().
std::string_view advice_on_opaque_node(std::string_view name);

/// The next one is logged again.
void forget_opaque_node_warnings();

}  // namespace hindcast::engine
