#pragma once
// Lets fork() wait for the threads that are inside the compiler.
//
// A child has only the thread that forked. If another thread held a lock of LLVM's at that moment, it would be held in the child forever,
// and the child's first compile would never end. So a fork waits for running compiles and loads (tens of milliseconds of CPU time, usually
// none), new ones wait for the fork, and the child can compile at once. The compile thread has a lower priority than the program, which is
// raised for the fork. Where all cores have other work and the process may not raise a thread's priority, a fork may wait for seconds.
//
// Convolutions that the thread times are in the gate too, one run at a time: they take oneDNN's locks.
//
// Locks that are taken only inside the gate are free whenever a fork happens: those of the process's table of kernels, and of the first
// search for the compiler and for the store.
//
// Calls that start a program without fork handlers (posix_spawn, vfork, system) do not wait, and need not.

namespace hindcast::base {

/// Held while a thread is inside the compiler; nesting costs nothing. Do not fork meanwhile.
class InsideCompiler {
 public:
  InsideCompiler();
  ~InsideCompiler();
  InsideCompiler(const InsideCompiler&) = delete;
  InsideCompiler& operator=(const InsideCompiler&) = delete;
};

}  // namespace hindcast::base
