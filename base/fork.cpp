#include "base/fork.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace hindcast::base {

struct ForkLocks {
  // Guards the list. Taken after all locks in the list, since a thread that holds one may make another.
  std::mutex mutex;
  std::vector<ForkLock*> by_rank, taken;
  std::mutex one_fork;          // one fork at a time, from before it until after it
  std::atomic<int> makers = 0;  // threads that make a MadeOnce, or wait for one
  std::atomic<bool> forking = false;
  std::atomic<bool> has_all = false;  // while a process forks: no thread may become a maker

  void before() {
    one_fork.lock();
    forking.store(true);
    for (;;) {
      while (makers.load() != 0) std::this_thread::yield();
      {
        const std::lock_guard guard(mutex);
        taken = by_rank;
      }
      for (ForkLock* lock : taken) lock->before_fork();
      mutex.lock();
      has_all.store(true);
      if (makers.load() == 0 && taken == by_rank) return;
      has_all.store(false);
      give_back();  // a lock was added, or a thread makes an object, which may need one of these
    }
  }
  void give_back() {
    mutex.unlock();
    std::for_each(taken.rbegin(), taken.rend(), [](ForkLock* lock) { lock->after_fork_in_parent(); });
  }
  void after_in_parent() {
    has_all.store(false);
    give_back();
    forking.store(false);
    one_fork.unlock();
  }
  void after_in_child() {
    makers.store(0);  // threads that were about to look at `has_all`
    has_all.store(false);
    mutex.unlock();
    std::for_each(taken.rbegin(), taken.rend(), [](ForkLock* lock) { lock->after_fork_in_child(); });
    forking.store(false);
    one_fork.unlock();
  }

  void add(ForkLock* lock) {
    const std::lock_guard guard(mutex);
    const auto later = [](const ForkLock* a, const ForkLock* b) { return a->rank_ < b->rank_; };
    by_rank.insert(std::upper_bound(by_rank.begin(), by_rank.end(), lock, later), lock);
  }
  // A fork may be taking this lock. The thread that destroys a lock holds no other.
  void remove(ForkLock* lock) {
    for (;;) {
      while (forking.load()) std::this_thread::yield();
      const std::lock_guard guard(mutex);
      if (forking.load()) continue;
      std::erase(by_rank, lock);
      return;
    }
  }

  static ForkLocks& of_process() {
    static auto* locks = [] {
      auto* made = new ForkLocks;  // never destroyed: a thread may fork while the process exits
      pthread_atfork([] { of_process().before(); }, [] { of_process().after_in_parent(); }, [] { of_process().after_in_child(); });
      return made;
    }();
    return *locks;
  }
};

// Registers the handlers before any other thread can be making an object.
[[maybe_unused]] static const ForkLocks& made_at_load = ForkLocks::of_process();

namespace {

// One of the makers, as long as it lives.
struct Maker {
  Maker() {
    while (locks.makers.fetch_add(1), locks.has_all.load()) {
      locks.makers.fetch_sub(1);
      while (locks.has_all.load()) std::this_thread::yield();
    }
  }
  ~Maker() { locks.makers.fetch_sub(1); }
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;

  ForkLocks& locks = ForkLocks::of_process();
};

// A lock on a flag.
struct TurnToMake {
  explicit TurnToMake(std::atomic<int>& is_taken) : is_taken(is_taken) {
    while (is_taken.exchange(1) != 0) is_taken.wait(1);
  }
  ~TurnToMake() {
    is_taken.store(0);
    is_taken.notify_all();
  }
  TurnToMake(const TurnToMake&) = delete;
  TurnToMake& operator=(const TurnToMake&) = delete;

  std::atomic<int>& is_taken;
};

}  // namespace

void* Making::made_by(void* (*make)(void* argument), void* argument) {
  const Maker counted;
  const TurnToMake turn(is_being_made_);
  void* made = made_.load();
  if (made == nullptr) {
    made = make(argument);
    made_.store(made, std::memory_order_release);
  }
  return made;
}

void ForkLock::enroll() { ForkLocks::of_process().add(this); }
void ForkLock::retire() { ForkLocks::of_process().remove(this); }

}  // namespace hindcast::base
