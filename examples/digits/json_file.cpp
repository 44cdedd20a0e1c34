#include "examples/digits/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

namespace digits {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_unwritable(const fs::path& path, int error) {
  throw std::runtime_error(
      fmt::format("cannot write the results to {}: {}; name another file with --json FILE", path.string(), std::strerror(error)));
}

nlohmann::json to_json(const Outcome& outcome) {
  // JSON has no infinity; the largest double cannot be mistaken for a small difference.
  const double max_grad_diff = std::min(outcome.gradients.largest, std::numeric_limits<double>::max());
  const ::hindcast::Stats& stats = outcome.stats;
  return {
      {"name", outcome.name},
      {"accuracy", outcome.accuracy},
      {"max_grad_diff", max_grad_diff},
      {"epochs", outcome.epochs},
      {"steps", outcome.steps},
      {"graphs", stats.unique_graphs},
      {"hits", stats.hits},
      {"misses", stats.misses},
      {"misses_by_reason", stats.misses_by_reason},
      {"fallbacks_by_reason", stats.fallbacks_by_reason},
      {"opaque_nodes", stats.opaque_nodes},
      {"stock_us", outcome.stock.median_us},
      {"hindcast_us", outcome.hindcast.median_us},
      {"stock_first_us", outcome.stock.first_us},
      {"hindcast_first_us", outcome.hindcast.first_us},
  };
}

}  // namespace

void require_writable(const fs::path& path) {
  std::error_code unknown;
  const bool existed = fs::exists(path, unknown);
  // Appending nothing checks the permissions and keeps the results of an earlier run.
  if (!std::ofstream(path, std::ios::app)) throw_unwritable(path, errno);
  if (!existed) fs::remove(path, unknown);
}

void write_json(const fs::path& path, const Options& options, const std::vector<Outcome>& outcomes) {
  nlohmann::json models = nlohmann::json::array();
  for (const Outcome& outcome : outcomes) models.push_back(to_json(outcome));
  const nlohmann::json results = {
      {"models", models},
      {"batch_size", options.batch_size},
      {"seed", options.seed},
      {"compiler", options.compiler},
      {"threads", torch::get_num_threads()},
      {"torch", TORCH_VERSION},
  };
  std::ofstream file(path);
  file << results.dump(2) << '\n';
  if (!file.flush()) throw_unwritable(path, errno);
}

}  // namespace digits
