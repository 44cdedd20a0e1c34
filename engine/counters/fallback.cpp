#include "engine/counters/fallback.h"

#include "base/log.h"
#include "engine/counters/stats_recorder.h"

#include <array>
#include <atomic>

namespace hindcast::engine {
namespace {

struct Row {
  const char* name;
  bool warns;
  const char* sentence;
};

constexpr std::array kRows = {
#define HC_ROW(enumerator, warns, sentence) Row{#enumerator, warns, sentence},
    HC_FALLBACK_REASONS(HC_ROW)
#undef HC_ROW
};

std::array<std::atomic<bool>, kRows.size()> warned{};

const Row& row(FallbackReason reason) { return kRows[static_cast<size_t>(reason)]; }

}  // namespace

const char* name(FallbackReason reason) { return row(reason).name; }
const char* explain(FallbackReason reason) { return row(reason).sentence; }

std::optional<FallbackReason> find_fallback_reason(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<FallbackReason>(i);
  }
  return std::nullopt;
}

void record_fallback(FallbackReason reason) {
  stats_recorder().add_fallback(name(reason));
  std::atomic<bool>& was_warned = warned[static_cast<size_t>(reason)];
  if (row(reason).warns && !was_warned.load(std::memory_order_relaxed) && !was_warned.exchange(true)) {
    HC_LOG(Fallbacks, Warning, "{}: {} The stock engine runs it; later ones are only counted.", name(reason), explain(reason));
  } else {
    HC_LOG(Fallbacks, Info, "{}: {}", name(reason), explain(reason));
  }
}

void forget_fallback_warnings() {
  for (std::atomic<bool>& was_warned : warned) was_warned.store(false, std::memory_order_relaxed);
}

}  // namespace hindcast::engine
