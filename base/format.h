#pragma once
// Text from values, for messages and logs: fmt's "{}" grammar without fmt's headers.
//
// LibTorch ships its own copy of fmt's headers, in another version than the system's library, and its folder comes first in the include
// path: a file that sees LibTorch and includes <fmt/format.h> fails to link. So only format.cpp includes fmt, without LibTorch, and values
// are passed to it as a small variant. This also keeps fmt's templates out of every file with an error message.

#include <array>
#include <cstdint>
#include <ranges>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace hindcast::base {

using FormatArg = std::variant<bool, char, int64_t, uint64_t, float, double, const void*, std::string_view, std::string>;

/// Substitutes `args` into `text`. Never throws for a format specification that does not fit its value, since an error message must not
/// turn into another error: the result is then the text itself and fmt's complaint.
std::string format_args(std::string_view text, std::span<const FormatArg> args);

template <class T>
concept Streamable = requires(std::ostream& out, const T& value) {
  out << value;
};

/// Arithmetic values, text and pointers are passed unchanged; a range as [a, b]; anything else through its operator<<.
template <class T>
FormatArg to_format_arg(const T& value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, char> || std::is_floating_point_v<T>) {
    if constexpr (std::is_same_v<T, long double>)
      return static_cast<double>(value);
    else
      return value;
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>)
      return static_cast<int64_t>(value);
    else
      return static_cast<uint64_t>(value);
  } else if constexpr (std::is_same_v<std::decay_t<T>, char*> || std::is_same_v<std::decay_t<T>, const char*>) {
    const char* text = value;
    return text == nullptr ? std::string_view("(null)") : std::string_view(text);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return std::string_view(value);
  } else if constexpr (std::is_pointer_v<T>) {
    return static_cast<const void*>(value);
  } else if constexpr (std::ranges::input_range<const T&>) {
    std::string text = "[";
    for (const auto& element : value) {
      const FormatArg arg = to_format_arg<std::remove_cvref_t<decltype(element)>>(element);
      if (text.size() > 1) text += ", ";
      text += format_args("{}", {&arg, 1});
    }
    return text + "]";
  } else {
    static_assert(Streamable<T>, "a value in a message needs operator<<, or must be made text first");
    std::ostringstream out;
    out << value;
    return std::move(out).str();
  }
}

void a_message_needs_one_value_for_each_pair_of_braces();  // never defined: its name is the compiler's error message

/// A format text; the compiler checks that its braces match the number of values.
template <class... Args>
class FormatText {
 public:
  template <size_t N>
  consteval FormatText(const char (&text)[N]) : text_(text, N - 1) {  // NOLINT: implicit, as a literal is what one writes
    size_t places = 0;
    size_t depth = 0;
    for (size_t i = 0; i < text_.size(); ++i) {
      const bool doubled = i + 1 < text_.size() && text_[i + 1] == text_[i];
      if (depth == 0 && doubled && (text_[i] == '{' || text_[i] == '}')) {
        ++i;
      } else if (text_[i] == '{') {
        ++depth;
        ++places;
      } else if (text_[i] == '}') {
        if (depth == 0) a_message_needs_one_value_for_each_pair_of_braces();
        --depth;
      }
    }
    if (depth != 0 || places != sizeof...(Args)) a_message_needs_one_value_for_each_pair_of_braces();
  }
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

/// format("rank {}, expected {}", 3, 2). Placeholders are filled in order; positions and names are not supported.
template <class... Args>
std::string format(FormatText<std::type_identity_t<Args>...> text, const Args&... args) {
  const std::array<FormatArg, sizeof...(Args)> values{to_format_arg<Args>(args)...};
  return format_args(text.text(), values);
}

}  // namespace hindcast::base
