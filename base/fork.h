#pragma once
// Locks that are free in the child after fork().
//
// A child has only the thread that forked. A lock that another thread held at that moment would be held in the child forever, over
// half-written data. So a fork first takes every lock of the library, in a fixed order; the parent releases them, the child makes them
// anew. Each lock is held only briefly, never while user code runs, with two exceptions that have their own rules: the compiler
// (base/fork_gate.h) and the output of logs (log.cpp).
//
// Objects that the process makes once, on first use, take longer than a lock should be held: MadeOnce.
//
// Dropping the last owner of a kernel waits at the compiler's gate, so it must hold no lock of this list.

#include <atomic>
#include <cstdint>
#include <new>
#include <utility>

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

/// A mutex, or a shared mutex. One that lives as long as the process is made when the library is loaded, or is a MadeOnce.
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

/// What MadeOnce needs of no type.
class Making {
 protected:
  constexpr Making() = default;
  /// Returns the object. The first call makes it, and others wait until it is made. If `make` throws, the next call makes it.
  void* made_by(void* (*make)(void* argument), void* argument);

  std::atomic<void*> made_ = nullptr;

 private:
  std::atomic<int> is_being_made_ = 0;
};

/// An object that the process makes on first use and never destroys, to be declared `constinit`. If a process forks while another thread
/// initialises a function's `static`, the child waits for that thread for ever. A fork waits for a MadeOnce that is being made, and a
/// thread starts to make one only before or after a fork. It may hold any lock: a fork that has all locks of the list waits for no thread.
template <class T>
class MadeOnce : private Making {
 public:
  constexpr MadeOnce() = default;
  MadeOnce(const MadeOnce&) = delete;
  MadeOnce& operator=(const MadeOnce&) = delete;

  template <class... Args>
  T& get(Args&&... args) {
    const auto make = [&] { return new T(std::forward<Args>(args)...); };
    return made_with(make);
  }
  /// For arguments that are not free to make: `value` is called to get the object's value.
  template <class Value>
  T& by(const Value& value) {
    const auto make = [&] { return new T(value()); };
    return made_with(make);
  }

 private:
  template <class Make>
  T& made_with(const Make& make) {
    void* made = made_.load(std::memory_order_acquire);
    if (made == nullptr) {
      const auto call = [](void* argument) { return const_cast<void*>(static_cast<const void*>((*static_cast<const Make*>(argument))())); };
      made = made_by(call, const_cast<void*>(static_cast<const void*>(&make)));
    }
    return *static_cast<T*>(made);
  }
};

}  // namespace hindcast::base
