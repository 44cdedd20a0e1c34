#include "codegen/clang/fork_gate.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>

namespace hindcast::codegen {
namespace {

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  int forking = 0;
};

Gate* gate = nullptr;

void before_fork() {
  std::unique_lock lock(gate->mutex);
  ++gate->forking;
  gate->changed.wait(lock, [] { return gate->inside == 0; });
  lock.release();  // held until after the fork, so that the child finds it in the hands of its only thread
}

void after_fork_in_parent() {
  --gate->forking;
  gate->mutex.unlock();
  gate->changed.notify_all();
}

void after_fork_in_child() {
  gate->forking = 0;
  gate->mutex.unlock();
  // Threads of the parent may have been waiting here; a condition variable counts them and the child has none of them.
  new (&gate->changed) std::condition_variable;
}

/// Made at the first use and never destroyed: threads may compile while the process exits.
Gate& the_gate() {
  static Gate* const made = [] {
    gate = new Gate;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return gate;
  }();
  return *made;
}

}  // namespace

InsideCompiler::InsideCompiler() {
  Gate& here = the_gate();
  std::unique_lock lock(here.mutex);
  here.changed.wait(lock, [&] { return here.forking == 0; });
  ++here.inside;
}

InsideCompiler::~InsideCompiler() {
  Gate& here = the_gate();
  {
    const std::scoped_lock lock(here.mutex);
    --here.inside;
  }
  here.changed.notify_all();
}

}  // namespace hindcast::codegen
