#pragma once
// Locks whose holder may wait for the interpreter: a thread that holds Python's GIL may wait for such a lock only without the GIL.

#include <mutex>

namespace hindcast::base {

/// `around_waits` calls `wait(argument)`, without the interpreter's lock if this thread holds it.
void wait_without_interpreter_by(void (*around_waits)(void (*wait)(void* argument), void* argument));

void wait_without_interpreter(void (*wait)(void* argument), void* argument);

template <class Mutex>
std::unique_lock<Mutex> locked_without_interpreter(Mutex& mutex) {
  std::unique_lock<Mutex> lock(mutex, std::try_to_lock);
  if (!lock.owns_lock()) wait_without_interpreter([](void* waiting) { static_cast<std::unique_lock<Mutex>*>(waiting)->lock(); }, &lock);
  return lock;
}

}  // namespace hindcast::base
