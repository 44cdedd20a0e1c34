#include "base/json.h"

#include <array>
#include <charconv>
#include <cmath>

namespace hindcast::base {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool continues(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the UTF-8 sequence that `text` starts with; 0: it starts with none. Overlong forms, surrogates, and what lies behind U+10FFFF
// are none.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF5 ? 0 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!continues(byte(i))) return 0;
  }
  const unsigned char second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return length;
}

void append_escaped(std::string& json, unsigned char byte) {
  switch (byte) {
    case '"':
      json += "\\\"";
      return;
    case '\\':
      json += "\\\\";
      return;
    case '\n':
      json += "\\n";
      return;
    default:
      break;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  json += "\\u00";
  json += kDigits[byte >> 4];
  json += kDigits[byte & 15];
}

template <class List, class Text>
std::string list_of(const List& list, Text text) {
  std::string json = "[";
  for (const auto& item : list) {
    if (json.size() > 1) json += ',';
    json += text(item);
  }
  return json + "]";
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string json = "\"";
  json.reserve(text.size() + text.size() / 8 + 2);
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      json += kReplacement;
    } else if (length == 1 && (byte < 0x20 || byte == '"' || byte == '\\' || byte == '<')) {
      append_escaped(json, byte);
    } else {
      json += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return json + "\"";
}

// The shortest text that reads back as the same number; JSON has no infinities.
std::string JsonObject::number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

JsonObject& JsonObject::add_raw(std::string_view name, std::string_view json) {
  if (!members_.empty()) members_ += ',';
  members_ += json_text(name);
  members_ += ':';
  members_ += json;
  return *this;
}

JsonObject& JsonObject::add(std::string_view name, std::span<const std::string> texts) { return add_raw(name, list_of(texts, json_text)); }
JsonObject& JsonObject::add(std::string_view name, std::span<const double> numbers) { return add_raw(name, list_of(numbers, number)); }
JsonObject& JsonObject::add(std::string_view name, std::span<const uint32_t> numbers) {
  return add_raw(name, list_of(numbers, [](uint32_t value) { return std::to_string(value); }));
}
JsonObject& JsonObject::add(std::string_view name, std::span<const JsonObject> objects) {
  return add_raw(name, list_of(objects, [](const JsonObject& object) { return object.str(); }));
}

}  // namespace hindcast::base
