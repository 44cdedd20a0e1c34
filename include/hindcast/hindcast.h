#pragma once
/// hindcast: compiled autograd for LibTorch. The main public header; valid C++17.

#include <hindcast/api.h>
#include <hindcast/grad_ready.h>
#include <hindcast/options.h>
#include <hindcast/stats.h>
#include <hindcast/traceable.h>
#include <hindcast/version.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace hindcast {

/// Takes over backward() and grad() on this thread for as long as it lives.
class HINDCAST_API Guard {
 public:
  Guard(Guard&& other) noexcept;
  Guard& operator=(Guard&&) = delete;
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  /// Destroy it on the thread that made it. On another one it changes nothing there, logs an error, and the guard of the thread that made
  /// it stays in effect. Of several guards, each ends its own options, in any order of destruction.
  ~Guard();

 private:
  friend Guard enable(Options);
  struct Scope;
  explicit Guard(std::shared_ptr<Scope> scope);
  std::shared_ptr<Scope> scope_;
};

/// Captures every backward that starts on this thread, for as long as the guard lives.
///
/// The first backward of a new structure is captured while it runs. Later ones with the same structure are looked up and
/// replayed. A size that changes between two calls costs one more capture, then is dynamic.
///
/// Gradients, hooks and their order are those of the stock engine. What cannot be captured (a double backward, anomaly
/// mode) runs there unchanged; `stats().fallbacks_by_reason` says why.
///
///     auto guard = hindcast::enable();
///     loss.backward();
///
/// Guards nest, and the innermost options win. Other threads are not affected: for threads that the program did not create, use
/// enable_process(). Throws std::invalid_argument for a bad option, HINDCAST_LOGS or HINDCAST_LOGS_OUT; a hook's own exception passes
/// through backward().
[[nodiscard]] HINDCAST_API Guard enable(Options options = {});
/// The same with a graph compiler of your own.
[[nodiscard]] HINDCAST_API Guard enable(Compiler compiler);

/// While alive, backward() and grad() are taken over on all threads of the process that have no guard of their own, including threads that
/// start later, whatever creates them. It may be destroyed on any thread.
class HINDCAST_API ProcessGuard {
 public:
  ProcessGuard(ProcessGuard&& other) noexcept;
  ProcessGuard& operator=(ProcessGuard&&) = delete;
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;
  ~ProcessGuard();

 private:
  friend ProcessGuard enable_process(Options);
  explicit ProcessGuard(std::uint64_t number);
  std::uint64_t number_;
};

/// enable() for all threads, also those that a library, a language runtime or a pool creates.
///
///     auto guard = hindcast::enable_process();   // in main()
///
/// A thread's own guard wins, even one with `enabled = false`. Of several ProcessGuards, the newest one alive wins. When the last one is
/// destroyed, running backwards finish as they began, and later ones run on the stock engine. A forked child has its parent's guards. From
/// exit() on, when LibTorch's globals are destroyed, the stock engine runs everything. The options are kept until then, equal ones once.
/// Throws as enable() does.
[[nodiscard]] HINDCAST_API ProcessGuard enable_process(Options options = {});

/// True if a backward that starts now on this thread would be captured or replayed.
HINDCAST_API bool active();

/// Returns when every graph that waits for compilers::fused() at the call has its kernels, or has failed to get them. Graphs that other
/// threads capture meanwhile are not waited for.
HINDCAST_API void wait();

/// Frees cached buffers (kept for large results of later steps) and CUDA graphs, which are captured again when needed, to LibTorch's
/// allocators; and returns malloc's free memory to the system. For use after training, or before a large allocation. Returns the bytes
/// freed to LibTorch's allocators. Thread-safe; tensors are not affected.
HINDCAST_API std::size_t trim();

/// Counters of this process since it started or since reset(). Safe from any thread.
HINDCAST_API Stats stats();
/// The same as text for people, with the reasons of recent misses.
HINDCAST_API std::string report();
/// Forgets all captured graphs and, for all threads, which calls are to be left to the stock engine; zeroes the counters; and returns
/// malloc's free memory to the system. Backwards that are running finish undisturbed.
HINDCAST_API void reset();

}  // namespace hindcast
