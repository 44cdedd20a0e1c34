#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hindcast::base {

/// The name that `word` is most likely a slip of, or nothing when none is near: at most a third of the word may differ.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names);

/// "a, b, c", sorted: how an error lists the names that it would have taken.
std::string sorted_list(std::span<const std::string_view> names);

}  // namespace hindcast::base
