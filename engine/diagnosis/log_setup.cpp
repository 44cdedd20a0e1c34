#include "engine/diagnosis/log_setup.h"

#include "base/fork.h"
#include "base/nearest_name.h"
#include "engine/diagnosis/trace/trace_setup.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>

namespace hindcast {
namespace {

constexpr std::string_view kAll = "all";

base::ForkSafe<std::mutex>& configuration_mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Setup);
std::atomic<bool> configured = false;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

[[noreturn]] void refuse_name(std::string_view name, std::string_view spec, std::string_view subject) {
  std::array<std::string_view, base::kChannelCount + 1> valid;
  *std::copy(base::kChannelNames.begin(), base::kChannelNames.end(), valid.begin()) = kAll;
  const std::string_view nearest = base::nearest_name(name, valid);
  const std::string hint = nearest.empty() ? "" : base::format(" Did you mean '{}'?", nearest);
  throw std::invalid_argument(base::format(
      "{}: {} in '{}'.{} Expected names separated by commas, each with + for debug, - for errors only, or "
      "neither for info. Valid names: {}.",
      subject, name.empty() ? "a name is missing" : base::format("unknown name '{}'", name), spec, hint, base::sorted_list(valid)));
}

void apply(const std::string& spec, const std::string& out, std::string_view spec_subject, std::string_view out_subject) {
  const base::LogThresholds thresholds = engine::parse_log_spec(spec, spec_subject);
  base::LogOutput output;
  try {
    output = out.empty() ? base::stderr_log_output() : base::file_log_output(out);
  } catch (const std::system_error& error) {
    throw std::invalid_argument(
        base::format("{}: cannot open '{}' to append to it: {}. Expected a file in a folder that exists and may be written "
                     "to; leave it empty for stderr.",
                     out_subject, out, error.code().message()));
  }
  base::exchange_log_output(std::move(output));
  base::set_log_thresholds(thresholds);
  configured.store(true, std::memory_order_release);
}

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void set_logs(const std::string& spec, const std::string& out) {
  const std::lock_guard lock(configuration_mutex);
  apply(spec, out, "set_logs", "set_logs");
}

namespace engine {

base::LogThresholds parse_log_spec(std::string_view spec, std::string_view subject) {
  const std::string_view whole = trimmed(spec);
  base::LogThresholds thresholds = base::default_log_thresholds();
  if (whole.empty() || whole == "0") return thresholds;

  std::optional<base::Level> all;
  std::array<std::optional<base::Level>, base::kChannelCount> named;
  std::string_view rest = whole;
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    std::string_view name = trimmed(rest.substr(0, comma));
    if (more) rest.remove_prefix(comma + 1);

    base::Level level = base::Level::Info;
    if (!name.empty() && (name.front() == '+' || name.front() == '-')) {
      level = name.front() == '+' ? base::Level::Debug : base::Level::Error;
      name = trimmed(name.substr(1));
    }
    const auto found = std::find(base::kChannelNames.begin(), base::kChannelNames.end(), name);
    if (name == kAll)
      all = level;
    else if (found != base::kChannelNames.end())
      named[static_cast<size_t>(found - base::kChannelNames.begin())] = level;
    else
      refuse_name(name, whole, subject);
  }
  for (size_t i = 0; i < thresholds.size(); ++i) thresholds[i] = named[i].value_or(all.value_or(thresholds[i]));
  return thresholds;
}

void configure_logs_from_environment() {
  start_trace_from_environment();
  if (configured.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(configuration_mutex);
  if (configured.load(std::memory_order_relaxed)) return;
  const std::string spec = environment("HINDCAST_LOGS");
  const std::string out = environment("HINDCAST_LOGS_OUT");
  apply(spec, out == "0" ? "" : out, "HINDCAST_LOGS", "HINDCAST_LOGS_OUT");
}

void forget_log_configuration() {
  const std::lock_guard lock(configuration_mutex);
  base::exchange_log_output(base::stderr_log_output());
  base::set_log_thresholds(base::default_log_thresholds());
  configured.store(false, std::memory_order_release);
}

}  // namespace engine
}  // namespace hindcast
