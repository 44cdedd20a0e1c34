#include "base/json.h"
#include "c_api/boundary.h"
#include "engine/counters/each_counter.h"
#include "hindcast/hindcast.h"

namespace hindcast::c_api {
namespace {

std::string stats_as_json(const Stats& stats) {
  base::JsonObject json;
  const auto add = [](base::JsonObject& to) { return [&to](const std::string& name, const auto& value) { to.add(name, value); }; };
  engine::for_each_counter(stats, add(json));
  engine::for_each_map(stats, [&](const std::string& name, const auto& values) {
    base::JsonObject object;
    for (const auto& [key, value] : values) object.add(key, value);
    json.add(name, object);
  });
  return json.str();
}

int32_t give_text(const char* function, char** text, std::string (*make)()) {
  if (text != nullptr) *text = nullptr;
  return at_boundary(function, [&] {
    require(text != nullptr, "`text`, where it would go, is NULL");
    *text = new_text(make());
  });
}

}  // namespace
}  // namespace hindcast::c_api

using namespace hindcast::c_api;

extern "C" {

int32_t hindcast_report(char** text) { return give_text("hindcast_report", text, &hindcast::report); }
int32_t hindcast_stats_json(char** text) {
  return give_text("hindcast_stats_json", text, [] { return stats_as_json(hindcast::stats()); });
}
int32_t hindcast_wait() {
  return at_boundary("hindcast_wait", [] { hindcast::wait(); });
}
int32_t hindcast_reset() {
  return at_boundary("hindcast_reset", [] { hindcast::reset(); });
}
int32_t hindcast_trim(uint64_t* bytes) {
  if (bytes != nullptr) *bytes = 0;
  return at_boundary("hindcast_trim", [&] {
    const uint64_t freed = hindcast::trim();
    if (bytes != nullptr) *bytes = freed;
  });
}
}
