#include "engine/diagnosis/trace/trace_setup.h"

#include "base/fork.h"
#include "base/log.h"
#include "base/trace.h"
#include "engine/diagnosis/trace/page.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>

namespace hindcast::engine {
namespace {

std::atomic<bool> is_read = false;

void read_environment() {
  const char* const folder = secure_getenv("HINDCAST_TRACE");
  if (folder == nullptr || *folder == '\0' || std::string_view(folder) == "0") return;
  try {
    base::start_trace({.folder = folder, .page = std::string(trace_page())});
  } catch (const std::system_error& error) {
    HC_LOG(CompiledAutograd, Warning, "HINDCAST_TRACE: no page is written, since no file can be made: {}", error.what());
  }
}

}  // namespace

void start_trace_from_environment() {
  static constinit base::MadeOnce<base::ForkSafe<std::mutex>> mutex;
  if (is_read.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex.get(base::ForkRank::Setup));
  if (is_read.load(std::memory_order_relaxed)) return;
  read_environment();
  is_read.store(true, std::memory_order_release);
}

}  // namespace hindcast::engine
