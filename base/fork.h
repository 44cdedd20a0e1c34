#pragma once
// Locks that are free in the child after fork().
//
// A child has only the thread that forked. A lock that another thread held at that moment would be held in the child forever, over
// half-written data. So a fork first takes every lock of the library, in a fixed order; the parent releases them, the child makes them
// anew. Each lock is held only briefly, never while user code runs, with two exceptions that have their own rules: the compiler
// (base/fork_gate.h) and the output of logs (log.cpp).
//
// Objects that the process makes once, on first use, take longer than a lock should be held: FirstUse.
//
// Dropping the last owner of a kernel waits at the compiler's gate, so it must hold no lock of this list.

#include <cstdint>
#include <new>

namespace hindcast::base {

/// The order in which a fork takes locks. A thread that holds one takes only locks of later ranks; Leaf: no other ForkRank lock.
enum class ForkRank : uint8_t { Setup, Background, Compiler, Trace, Cache, Leaf, Memory };

/// Base of what a fork holds while it happens, between enroll() and retire(): the first and the last call in the object's lifetime.
class ForkLock {
 public:
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;

 protected:
  explicit ForkLock(ForkRank rank) : rank_(rank) {}
  ~ForkLock() = default;
  void enroll();
  void retire();

 private:
  friend struct ForkLocks;
  virtual void before_fork() = 0;
  virtual void after_fork_in_parent() = 0;
  virtual void after_fork_in_child() = 0;

  const ForkRank rank_;
};

/// A mutex, or a shared mutex. Make it when the library is loaded, not in a function's `static`: during a fork the constructor waits for
/// the fork, and the child would wait for ever for a `static` that another thread was making.
template <class Mutex>
class ForkSafe final : public Mutex, private ForkLock {
 public:
  explicit ForkSafe(ForkRank rank) : ForkLock(rank) { enroll(); }
  ~ForkSafe() { retire(); }

 private:
  void before_fork() override { this->lock(); }
  void after_fork_in_parent() override { this->unlock(); }
  // The child also constructs the mutex anew: glibc's shared mutex identifies its writer by thread id, which differs in the child.
  void after_fork_in_child() override {
    this->unlock();
    new (static_cast<Mutex*>(this)) Mutex;
  }
};

/// Held while a `static` object is being made once per process. A fork waits for it: otherwise its child would wait for a thread that it
/// does not have. FirstUse never waits for a fork, so any lock may be held here.
class FirstUse {
 public:
  FirstUse();
  ~FirstUse();
  FirstUse(const FirstUse&) = delete;
  FirstUse& operator=(const FirstUse&) = delete;
};

template <class Make>
auto first_use(Make make) {
  const FirstUse here;
  return make();
}

}  // namespace hindcast::base
