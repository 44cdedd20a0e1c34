#pragma once
// Locks that fork() finds free.
//
// A child has only the thread that forked. A lock that another thread held at that moment would be held in the child for
// good, over data that is half written. So a fork first takes every lock of the library, in one order; the parent gives them
// back, the child makes them anew. Each is held for a moment only: never while user code runs, with two exceptions that wait
// or are left alone by their own rules: the compiler (base/fork_gate.h) and the output of logs (log.cpp).
//
// What a process makes once, on first use, takes longer than a lock should be held: FirstUse.
//
// Whoever drops the last owner of a kernel waits at the compiler's gate, and so holds no lock of this list.

#include <cstdint>
#include <new>

namespace hindcast::base {

/// The order in which a fork takes locks. Code that holds one takes only locks of later ranks; Leaf: none of these.
enum class ForkRank : uint8_t { Setup, Background, Compiler, Trace, Cache, Leaf, Memory };

/// What a fork holds while it happens, from enroll() to retire(): the first and the last thing that a whole object does.
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

/// A mutex, or a shared mutex.
template <class Mutex>
class ForkSafe final : public Mutex, private ForkLock {
 public:
  explicit ForkSafe(ForkRank rank) : ForkLock(rank) { enroll(); }
  ~ForkSafe() { retire(); }

 private:
  void before_fork() override { this->lock(); }
  void after_fork_in_parent() override { this->unlock(); }
  // Made anew, too: glibc's shared mutex knows its writer by a thread's id, which is another one in the child.
  void after_fork_in_child() override {
    this->unlock();
    new (static_cast<Mutex*>(this)) Mutex;
  }
};

/// Held while something is made that the process makes once and a `static` keeps. A fork waits: else its child would wait for a
/// thread that it does not have. Nobody waits for a fork here, so that any lock may be held.
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
