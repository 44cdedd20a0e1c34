#pragma once

#include <string>
#include <string_view>

namespace hindcast::engine {

/// Counts a node that was captured as opaque. The first node of TorchScript's executor is logged as a warning that says what to do.
void tell_opaque_node(const std::string& name, const std::string& reason);

/// For a node of TorchScript's executor, what the user can do about it; empty for others. One sentence, for logs and report().
std::string_view advice_on_opaque_node(std::string_view name);

/// Makes the next such node log the warning again.
void forget_opaque_node_warnings();

}  // namespace hindcast::engine
