#include "engine/base/fork.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace hindcast::base {

struct ForkLocks {
  std::mutex mutex;
  std::vector<ForkLock*> by_rank;

  std::atomic<int> first_uses = 0;

  void before() {
    for (;;) {
      while (first_uses.load() != 0) std::this_thread::yield();
      mutex.lock();  // until after the fork: the list stays as it is
      for (ForkLock* lock : by_rank) lock->before_fork();
      if (first_uses.load() == 0) return;
      after_in_parent();  // it may wait for one of these locks
    }
  }
  void after_in_parent() {
    std::for_each(by_rank.rbegin(), by_rank.rend(), [](ForkLock* lock) { lock->after_fork_in_parent(); });
    mutex.unlock();
  }
  void after_in_child() {
    std::for_each(by_rank.rbegin(), by_rank.rend(), [](ForkLock* lock) { lock->after_fork_in_child(); });
    new (&mutex) std::mutex;
  }

  void add(ForkLock* lock) {
    const std::lock_guard guard(mutex);
    const auto later = [](const ForkLock* a, const ForkLock* b) { return a->rank_ < b->rank_; };
    by_rank.insert(std::upper_bound(by_rank.begin(), by_rank.end(), lock, later), lock);
  }
  void remove(ForkLock* lock) {
    const std::lock_guard guard(mutex);
    std::erase(by_rank, lock);
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

FirstUse::FirstUse() { ForkLocks::of_process().first_uses.fetch_add(1); }
FirstUse::~FirstUse() { ForkLocks::of_process().first_uses.fetch_sub(1); }

void ForkLock::enroll() { ForkLocks::of_process().add(this); }
void ForkLock::retire() { ForkLocks::of_process().remove(this); }

}  // namespace hindcast::base
