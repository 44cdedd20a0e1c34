#pragma once
// Lets fork() wait for the threads that are inside the compiler.
//
// A child has only the thread that forked. Had another one held a lock of LLVM's at that moment, it would be held in the
// child for good, and the child's first compile would never end. So a fork waits for the compiles and loads under way (tens
// of milliseconds, as a rule none), those that would begin meanwhile wait for the fork, and the child may compile at once.
//
// What is locked only inside of the gate is free whenever a fork happens: the process's table of kernels, the first look for
// the compiler and for the store.
//
// What starts a program without running fork handlers (posix_spawn, vfork, system) waits for nothing, and needs not to.

namespace hindcast::base {

/// Held while a thread is inside the compiler; again within it costs nothing. Do not fork meanwhile.
class InsideCompiler {
 public:
  InsideCompiler();
  ~InsideCompiler();
  InsideCompiler(const InsideCompiler&) = delete;
  InsideCompiler& operator=(const InsideCompiler&) = delete;
};

}  // namespace hindcast::base
