#include "python/csrc/guards.h"

#include "base/fork.h"
#include "hindcast/hindcast.h"

#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

namespace hindcast::python {
namespace {

struct Guards {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Setup};
  std::vector<Options> options;
  std::map<int64_t, std::variant<Guard, ProcessGuard>> by_number;
  int64_t last = 0;
};
Guards& guards() {
  static constinit base::MadeOnce<Guards> guards;
  return guards.get();
}

}  // namespace

Compiler compiler_named(const std::string& name) {
  if (name.empty()) return {};
  if (name == "eager") return compilers::eager();
  if (name == "fused") return compilers::fused();
  TORCH_CHECK_VALUE(name == "fused_through_aten", "compiler: '", name, "', expected 'fused', 'eager' or 'fused_through_aten'");
  return compilers::fused_through_aten();
}

int64_t keep_options(const std::string& compiler, const std::string& dynamic, int64_t limit, int64_t cache_size, int64_t cache_bytes,
                     int64_t cuda_graph_bytes, bool back_off, bool deterministic, bool async, bool verify, bool nan_guard, bool cuda_graphs,
                     bool require_cuda_graph, bool enabled, const std::string& collector) {
  Options options;
  options.compiler = compiler_named(compiler);
  options.dynamic = dynamic == "never" ? Dynamic::Never : Dynamic::Automatic;
  options.limit = static_cast<size_t>(limit);
  options.cache_size = static_cast<size_t>(cache_size);
  options.cache_bytes = static_cast<size_t>(cache_bytes);
  options.back_off = back_off;
  options.deterministic = deterministic;
  options.async = async;
  options.verify = verify;
  options.nan_guard = nan_guard;
  options.cuda_graphs = cuda_graphs;
  options.require_cuda_graph = require_cuda_graph;
  options.cuda_graph_bytes = static_cast<size_t>(cuda_graph_bytes);
  options.collector = collector == "visitor" ? Collector::Visitor : Collector::Typed;
  options.enabled = enabled;
  const std::lock_guard lock(guards().mutex);
  guards().options.push_back(std::move(options));
  return static_cast<int64_t>(guards().options.size()) - 1;
}

namespace {

template <class Enable>
int64_t add_guard(int64_t options, const Enable& enable) {
  try {
    std::unique_lock find(guards().mutex);
    Options found = guards().options.at(static_cast<size_t>(options));
    find.unlock();
    auto guard = enable(std::move(found));
    const std::lock_guard lock(guards().mutex);
    const int64_t number = ++guards().last;
    guards().by_number.emplace(number, std::move(guard));
    return number;
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

int64_t enable(int64_t options) {
  return add_guard(options, [](Options given) { return hindcast::enable(std::move(given)); });
}

int64_t enable_process(int64_t options) {
  return add_guard(options, [](Options given) { return hindcast::enable_process(std::move(given)); });
}

void disable(int64_t number) {
  std::optional<std::variant<Guard, ProcessGuard>> guard;  // destroyed after the lock is released
  const std::lock_guard lock(guards().mutex);
  const auto found = guards().by_number.find(number);
  if (found == guards().by_number.end()) return;
  guard.emplace(std::move(found->second));
  guards().by_number.erase(found);
}

}  // namespace hindcast::python
