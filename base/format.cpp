#include "base/format.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include <exception>

namespace hindcast::base {

std::string format_args(std::string_view text, std::span<const FormatArg> args) {
  try {
    fmt::dynamic_format_arg_store<fmt::format_context> store;
    store.reserve(args.size(), 0);
    for (const FormatArg& arg : args) std::visit([&](const auto& value) { store.push_back(value); }, arg);
    return fmt::vformat(fmt::string_view(text.data(), text.size()), store);
  } catch (const fmt::format_error& error) {
    return std::string(text) + " (its values could not be put in: " + error.what() + ")";
  }
}

}  // namespace hindcast::base
