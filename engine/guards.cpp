#include "base/log.h"
#include "base/never_freed.h"
#include "engine/call_state.h"
#include "engine/diagnosis/log_setup.h"
#include "engine/options/use_options.h"
#include "engine/process_guards.h"
#include "engine/takeover.h"
#include "hindcast/hindcast.h"

#include <thread>
#include <utility>
#include <vector>

namespace hindcast {
namespace {

void prepare(Options& options) {
  engine::check(options);
  if (!options.compiler) options.compiler = engine::default_compiler();
  engine::configure_logs_from_environment();
  engine::install();
}

}  // namespace

// A thread's guards form a linked list, innermost first.
struct Guard::Scope {
  Options options;
  std::thread::id thread = std::this_thread::get_id();
  Scope* outer = nullptr;

  // Never frees it: its thread still points to the options.
  static void keep(std::shared_ptr<Scope> scope) { base::never_free(std::move(scope)); }

  // A hook may end the guard whose options its backward is reading. Such a guard is freed when this thread next makes or ends one outside
  // of a backward.
  static void end(std::shared_ptr<Scope> scope) {
    if (engine::reads_options()) {
      ended().push_back(std::move(scope));
    } else {
      drop_ended();
    }
  }
  static void drop_ended() {
    if (!engine::reads_options()) ended().clear();
  }
  static std::vector<std::shared_ptr<Scope>>& ended() {
    static thread_local std::vector<std::shared_ptr<Scope>> scopes;
    return scopes;
  }

  static Scope*& innermost() {
    static thread_local Scope* scope = nullptr;
    return scope;
  }
};

Guard::Guard(std::shared_ptr<Scope> scope) : scope_(std::move(scope)) {}
Guard::Guard(Guard&& other) noexcept = default;

Guard::~Guard() {
  if (!scope_) return;
  if (scope_->thread != std::this_thread::get_id()) {
    HC_LOG(CompiledAutograd, Error, "a guard was destroyed on another thread than the one that made it: that thread stays enabled");
    Scope::keep(std::move(scope_));
    return;
  }
  // Usually this is the innermost one; guards in containers or globals may be destroyed in another order.
  for (Scope** link = &Scope::innermost(); *link; link = &(*link)->outer) {
    if (*link != scope_.get()) continue;
    *link = scope_->outer;
    break;
  }
  const Scope* now = Scope::innermost();
  engine::set_thread_options(now ? &now->options : nullptr);
  Scope::end(std::move(scope_));
}

Guard enable(Options options) {
  prepare(options);
  Guard::Scope::drop_ended();
  auto scope = std::make_shared<Guard::Scope>();
  scope->options = std::move(options);
  scope->outer = Guard::Scope::innermost();
  Guard::Scope::innermost() = scope.get();
  engine::set_thread_options(&scope->options);
  return Guard(std::move(scope));
}

Guard enable(Compiler compiler) {
  Options options;
  options.compiler = std::move(compiler);
  return enable(std::move(options));
}

ProcessGuard::ProcessGuard(std::uint64_t number) : number_(number) {}
ProcessGuard::ProcessGuard(ProcessGuard&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
ProcessGuard::~ProcessGuard() {
  if (number_ != 0) engine::remove_process_guard(number_);
}

ProcessGuard enable_process(Options options) {
  prepare(options);
  return ProcessGuard(engine::add_process_guard(options));
}

bool active() {
  const Options* options = engine::current_options();
  return options && options->enabled && !engine::disabled_by_environment() && !engine::fallback_for_thread_state();
}

}  // namespace hindcast
