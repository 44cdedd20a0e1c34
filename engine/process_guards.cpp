#include "engine/process_guards.h"

#include "base/fork.h"
#include "engine/takeover.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace hindcast::engine {
namespace {

// Lists all fields, so that adding one is a compile error until it is compared here.
bool are_equal(const Options& a, const Options& b) {
  const auto fields = [](const Options& options) {
    const auto& [compiler, dynamic, limit, cache_size, cache_bytes, back_off, deterministic, async, verify, nan_guard, cuda_graphs,
                 require_cuda_graph, cuda_graph_bytes, collector, enabled] = options;
    return std::tuple(compiler.identity(), dynamic, limit, cache_size, cache_bytes, back_off, deterministic, async, verify, nan_guard,
                      cuda_graphs, require_cuda_graph, cuda_graph_bytes, collector, enabled);
  };
  return fields(a) == fields(b);
}

class ProcessGuards;
ProcessGuards& process_guards();

class ProcessGuards {
 public:
  std::uint64_t add(const Options& options) {
    const std::lock_guard lock(mutex_);
    guards_.push_back({++last_, keep(options)});
    publish();
    if (last_ == 1) std::atexit([] { process_guards().end(); });
    return last_;
  }
  // At process exit LibTorch's globals are destroyed. A backward in a global's destructor then gets the engine that needs least of them.
  void end() {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    publish();
  }
  void remove(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    std::erase_if(guards_, [&](const OfProcess& guard) { return guard.number == number; });
    publish();
  }

 private:
  struct OfProcess {
    std::uint64_t number;
    const Options* options;
  };

  const Options* keep(const Options& options) {
    for (const auto& kept : kept_) {
      if (are_equal(*kept, options)) return kept.get();
    }
    return kept_.emplace_back(std::make_unique<const Options>(options)).get();
  }
  void publish() const { set_process_options(has_ended_ || guards_.empty() ? nullptr : guards_.back().options); }

  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};
  std::vector<OfProcess> guards_;
  // Never freed, since backwards of other threads may be reading them when their guard ends. Equal options are stored once, so a program
  // that switches on and off does not accumulate them.
  std::vector<std::unique_ptr<const Options>> kept_;
  std::uint64_t last_ = 0;
  bool has_ended_ = false;
};

ProcessGuards& process_guards() {
  static constinit base::MadeOnce<ProcessGuards> guards;  // never destroyed: a guard may be global
  return guards.get();
}

}  // namespace

std::uint64_t add_process_guard(const Options& options) { return process_guards().add(options); }
void remove_process_guard(std::uint64_t number) { process_guards().remove(number); }

}  // namespace hindcast::engine
