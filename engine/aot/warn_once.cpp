#include "engine/aot/warn_once.h"

#include "base/fork.h"
#include "base/format.h"
#include "base/log.h"
#include "engine/counters/stats_recorder.h"

#include <mutex>
#include <set>

namespace hindcast::engine {

static base::ForkSafe<std::mutex>& said_mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);
static auto& said = *new std::set<std::string>;

void warn_once(const std::string& text) {
  const bool is_new = [&] {
    const std::lock_guard lock(said_mutex);
    return said.size() < 100 && said.insert(text).second;
  }();
  if (is_new) {
    HC_LOG(Aot, Warning, "{}", text);
  } else {
    HC_LOG(Aot, Info, "{}", text);
  }
}

void note_eager(std::string_view reason) {
  stats_recorder().add_eager_function(reason);
  warn_once(base::format("a function runs eagerly from now on: {}", reason));
}

void note_eager_call(std::string_view reason) {
  stats_recorder().add_eager_function(reason);
  warn_once(base::format("a function runs eagerly: {}", reason));
}

}  // namespace hindcast::engine
