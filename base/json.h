#pragma once
// A JSON writer whose output can be embedded in an HTML script. No reader.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace hindcast::base {

/// A JSON string, quotes included. It contains no "<", so it cannot end a script or begin a comment. Bytes that are not UTF-8 become
/// U+FFFD: a single one would make the whole text unreadable.
std::string json_text(std::string_view text);

/// An object, built member by member.
class JsonObject {
 public:
  JsonObject& add(std::string_view name, std::string_view value) { return add_raw(name, json_text(value)); }
  JsonObject& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  JsonObject& add(std::string_view name, const std::string& value) { return add(name, std::string_view(value)); }
  template <class Number>
  requires std::is_arithmetic_v<Number> JsonObject& add(std::string_view name, Number value) {
    if constexpr (std::is_same_v<Number, bool>) {
      return add_raw(name, value ? "true" : "false");
    } else if constexpr (std::is_floating_point_v<Number>) {
      return add_raw(name, number(value));
    } else {
      return add_raw(name, std::to_string(value));
    }
  }
  JsonObject& add(std::string_view name, const JsonObject& object) { return add_raw(name, object.str()); }
  JsonObject& add(std::string_view name, std::span<const std::string> texts);
  JsonObject& add(std::string_view name, std::span<const double> numbers);
  JsonObject& add(std::string_view name, std::span<const uint32_t> numbers);
  JsonObject& add(std::string_view name, std::span<const JsonObject> objects);

  std::string str() const { return "{" + members_ + "}"; }

 private:
  JsonObject& add_raw(std::string_view name, std::string_view json);
  static std::string number(double value);

  std::string members_;
};

}  // namespace hindcast::base
