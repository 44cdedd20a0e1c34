#include "hindcast/detail/back_off_policy.h"

#include "base/fork.h"
#include "base/log.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <mutex>

namespace hindcast::detail {
namespace {

constexpr uint32_t kPatience = 32, kMostPatience = 2048;  // calls in a row before some are timed
constexpr uint32_t kTurns = 16;
constexpr NextCalls kMostLeft = 1023, kMostLeftAfterErrors = 255;
constexpr uint64_t kMostLeftNs = 10'000'000;
constexpr uint32_t kLooks = 32;  // calls examined while others are skipped, before the verdict is measured again

uint64_t wall_ns() { return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count()); }

// An aperiodic order of turns (the Thue-Morse sequence), so that it does not align with a period of the program.
bool is_functions(uint32_t turn) { return (__builtin_popcount(turn) & 1) != 0; }

}  // namespace

uint64_t processor_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct BackOffPolicy::State {
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  mutable base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};  // guards what follows
  const void* kind = nullptr;
  uint32_t in_a_row = 0, patience = kPatience, thrown_in_a_row = 0;
  bool is_timing = false;
  uint32_t turn = 0;
  uint64_t least = kNever, least_own = kNever;                    // of the timed calls
  uint64_t least_backward = kNever, least_own_backward = kNever;  // of their backwards, if any
  NextCalls length = 0;                                           // how many calls are skipped at a time; 0: none
  uint64_t skips_since = 0;
  uint32_t looks = 0;

  void begin(const void* of) {
    kind = of;
    in_a_row = 0;
    patience = kPatience;
    is_timing = false;
    length = 0;
  }
  NextCalls time() {
    is_timing = true;
    turn = 0;
    least = least_own = least_backward = least_own_backward = kNever;
    return kTimed;
  }
  // Calls without a backward are compared by their own times. If only one side had a backward, the two are not comparable.
  bool is_complete() const {
    return least != kNever && least_own != kNever && (least_backward == kNever) == (least_own_backward == kNever);
  }
  // The function alone must be faster by more than the clock's error. A program with a backward must be faster by an eighth, since creating
  // and destroying its node costs more, and is not timed.
  bool is_slower() const {
    if (!is_complete()) return false;
    if (least_backward == kNever) return least > least_own + least_own / 50;
    const uint64_t own = least_own + least_own_backward;
    return least + least_backward > own - own / 8;
  }
  NextCalls judge() {
    is_timing = false;
    looks = in_a_row = 0;
    if (is_slower()) return skip();
    length = 0;
    patience = std::min(kMostPatience, patience * 8);
    return 0;
  }
  NextCalls skip() {
    skips_since = wall_ns();
    return length = std::min<NextCalls>(kMostLeft, static_cast<NextCalls>(kMostLeftNs / std::max<uint64_t>(1, least_own)));
  }
  // A timed call that was traced, or that ran after a long search, takes several times as long as one that is skipped.
  NextCalls skip_again() {
    least_own = std::min(least_own, (wall_ns() - skips_since) / static_cast<uint64_t>(length));
    return skip();
  }
};

BackOffPolicy::BackOffPolicy() : state_(std::make_unique<State>()) {}
BackOffPolicy::~BackOffPolicy() = default;

NextCalls BackOffPolicy::looked(Gain gain, const void* kind) {
  if (gain == Gain::Some && is_idle_.load(std::memory_order_relaxed)) return 0;
  const std::lock_guard lock(state_->mutex);
  state_->thrown_in_a_row = 0;
  if (gain == Gain::Unknown) return state_->is_timing ? kTimed : 0;
  if (gain == Gain::Some) {
    state_->begin(nullptr);
    is_idle_.store(true, std::memory_order_relaxed);
    return 0;
  }
  is_idle_.store(false, std::memory_order_relaxed);
  if (gain == Gain::None) kind = nullptr;
  if (kind != state_->kind) state_->begin(kind);
  if (state_->is_timing) return kTimed;
  if (state_->length != 0) return ++state_->looks < kLooks ? state_->skip_again() : state_->time();
  return ++state_->in_a_row < state_->patience ? 0 : state_->time();
}

NextCalls BackOffPolicy::threw() {
  is_idle_.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(state_->mutex);
  const NextCalls in_a_row = ++state_->thrown_in_a_row;
  return in_a_row < kPatience ? 0 : std::min(kMostLeftAfterErrors, 16 * (in_a_row - kPatience + 1));
}

NextCalls BackOffPolicy::took(uint64_t whole_ns, uint64_t own_ns) {
  NextCalls next = 0;
  uint64_t least = 0, least_own = 0;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->is_timing) return 0;
    const bool was_eager = state_->kind == nullptr;
    if (own_ns != 0) state_->least_own = std::min(state_->least_own, own_ns);
    if (own_ns == 0 || was_eager) state_->least = std::min(state_->least, whole_ns);
    if (++state_->turn < kTurns) return kTimed;
    next = state_->judge();
    least = state_->least;
    least_own = state_->least_own;
    if (state_->least_backward != State::kNever) least += state_->least_backward;
    if (state_->least_own_backward != State::kNever) least_own += state_->least_own_backward;
  }
  HC_LOG(Aot, Info, "a call takes {} ns, the function alone {} ns: {}", least, least_own,
         next != 0 ? "calls are left to the function" : "programs serve them");
  return next;
}

const void* BackOffPolicy::timed_kind() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_timing ? state_->kind : nullptr;
}

void BackOffPolicy::took_backward(const void* kind, uint64_t ns, bool is_own) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->is_timing || state_->kind != kind) return;
  uint64_t& least = is_own ? state_->least_own_backward : state_->least_backward;
  least = std::min(least, ns);
}

bool BackOffPolicy::is_functions_turn(const void* kind) const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_timing && state_->kind == kind && is_functions(state_->turn);
}

}  // namespace hindcast::detail
