#include "base/json.h"

#include <nlohmann/json.hpp>

namespace hindcast::base {
namespace {

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
  std::string json = nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
  for (size_t at = json.find('<'); at != json.npos; at = json.find('<', at)) json.replace(at, 1, "\\u003c");
  return json;
}

std::string JsonObject::number(double value) { return nlohmann::json(value).dump(); }  // JSON has no infinities: null

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
