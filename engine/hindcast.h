#pragma once
/// hindcast: compiled autograd for LibTorch. All that a user includes; valid C++17.

#include "base/api.h"
#include "engine/options.h"
#include "engine/counters/stats.h"
#include "hooks/grad_ready.h"
#include "hooks/traceable.h"

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
  /// Destroy it on the thread that made it. On another one it changes nothing there, logs an error, and the thread that made
  /// it stays as it is. Of several guards, each ends its own options, in whatever order they go.
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
/// Guards nest and the innermost options win; other threads are not affected: enable_process() is for those that the program did not make.
/// Throws std::invalid_argument for a bad option, HINDCAST_LOGS or HINDCAST_LOGS_OUT; a hook's own exception passes through backward().
[[nodiscard]] HINDCAST_API Guard enable(Options options = {});
/// The same with a graph compiler of your own.
[[nodiscard]] HINDCAST_API Guard enable(Compiler compiler);

/// While it lives, backward() and grad() are taken over on all threads of the process that have no guard of their own: existing threads and
/// later ones, whoever creates them. It may be destroyed on any thread.
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

/// enable() for all threads: for those that a library, a language's runtime or a pool makes.
///
///     auto guard = hindcast::enable_process();   // in main()
///
/// A thread's own guard wins, one with `enabled = false` too. Of several ProcessGuards, the newest that lives wins. When the last one goes,
/// backwards that are running finish as they began, and those that start later run on the stock engine. A fork's child has the guards of its
/// parent. From exit() on, when LibTorch's globals go, the stock engine runs everything. The options are kept until then, equal ones once.
/// Throws as enable() does.
[[nodiscard]] HINDCAST_API ProcessGuard enable_process(Options options = {});

/// True if a backward that starts now on this thread would be captured or replayed.
HINDCAST_API bool active();

/// Returns when every graph that waited for compilers::fused() has its kernels, or has failed to get them.
HINDCAST_API void wait();

/// Returns to LibTorch's allocators the memory that is kept for large results of later steps, and for CUDA graphs, which are recorded
/// again; and to the system what malloc has free: after training, or before something large. Returns the size of the former in bytes. Safe from any thread; tensors
/// are not affected.
HINDCAST_API std::size_t trim();

/// Counters of this process since it started or since reset(). Safe from any thread.
HINDCAST_API Stats stats();
/// The same as text for people, with the reasons of recent misses.
HINDCAST_API std::string report();
/// Forgets every captured graph and which calls of all threads were to be left to the stock engine, zeroes the counters, and returns what
/// malloc has free to the system. Backwards that are running finish undisturbed.
HINDCAST_API void reset();

}  // namespace hindcast
