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
  std::mutex one_fork;  // one fork at a time, from before it until after it
  std::atomic<int> first_uses = 0;
  std::atomic<bool> forking = false;

  void before() {
    one_fork.lock();
    forking.store(true);
    for (;;) {
      while (first_uses.load() != 0) std::this_thread::yield();
      {
        const std::lock_guard guard(mutex);
        taken = by_rank;
      }
      for (ForkLock* lock : taken) lock->before_fork();
      mutex.lock();
      if (first_uses.load() == 0 && taken == by_rank) return;
      give_back();  // a lock was added or a first use began, which may wait for one of these
    }
  }
  void give_back() {
    mutex.unlock();
    std::for_each(taken.rbegin(), taken.rend(), [](ForkLock* lock) { lock->after_fork_in_parent(); });
  }
  void after_in_parent() {
    give_back();
    forking.store(false);
    one_fork.unlock();
  }
  void after_in_child() {
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

FirstUse::FirstUse() { ForkLocks::of_process().first_uses.fetch_add(1); }
FirstUse::~FirstUse() { ForkLocks::of_process().first_uses.fetch_sub(1); }

void ForkLock::enroll() { ForkLocks::of_process().add(this); }
void ForkLock::retire() { ForkLocks::of_process().remove(this); }

}  // namespace hindcast::base
