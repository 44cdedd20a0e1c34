#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hindcast::base {

/// The name that `word` most likely misspells, or empty if none is near: at most a third of the word may differ.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names);

/// "a, b, c", sorted: lists valid names in an error.
std::string sorted_list(std::span<const std::string_view> names);

}  // namespace hindcast::base
