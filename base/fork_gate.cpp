#include "base/fork_gate.h"

#include "base/fork.h"

#include <condition_variable>
#include <mutex>
#include <new>

namespace hindcast::base {
namespace {

class Gate final : private base::ForkLock {
 public:
  Gate() : ForkLock(base::ForkRank::Compiler) { enroll(); }

  void enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return forking_ == 0; });
    ++inside_;
  }
  void leave() {
    {
      const std::scoped_lock lock(mutex_);
      --inside_;
    }
    changed_.notify_all();
  }

 private:
  void before_fork() override {
    std::unique_lock lock(mutex_);
    ++forking_;
    changed_.wait(lock, [&] { return inside_ == 0; });
    lock.release();  // held until after the fork, so that the child's only thread owns it
  }
  void after_fork_in_parent() override {
    --forking_;
    mutex_.unlock();
    changed_.notify_all();
  }
  void after_fork_in_child() override {
    forking_ = 0;
    mutex_.unlock();
    // Threads of the parent may have been waiting here; a condition variable counts them, but the child does not have them.
    new (&changed_) std::condition_variable;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  int forking_ = 0;
};

Gate& gate() {
  static constinit MadeOnce<Gate> made;  // never destroyed: threads may compile while the process exits
  return made.get();
}

thread_local int depth = 0;  // a thread that is inside already does not wait for a fork, which waits for it

}  // namespace

InsideCompiler::InsideCompiler() {
  if (depth++ == 0) gate().enter();
}

InsideCompiler::~InsideCompiler() {
  if (--depth == 0) gate().leave();
}

}  // namespace hindcast::base
