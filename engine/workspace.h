#pragma once

#include "cache/key.h"
#include "capture/backward/collected.h"
#include "capture/symbols/symbols.h"

#include <memory>

namespace hindcast::engine {

/// Vectors that keep their memory from call to call.
struct Workspace {
  capture::Collected collected;
  capture::Facts resumed;
  capture::Bindings bindings;
  capture::Env env;
  cache::KeyBytes state;
};

/// A workspace for one call. A finished call leaves it to the next one of this thread; a nested call (never ours today) makes its own.
class BorrowedWorkspace {
 public:
  BorrowedWorkspace();
  ~BorrowedWorkspace();
  BorrowedWorkspace(const BorrowedWorkspace&) = delete;
  BorrowedWorkspace& operator=(const BorrowedWorkspace&) = delete;
  Workspace& operator*() { return *work_; }

 private:
  std::unique_ptr<Workspace> work_;
};

}  // namespace hindcast::engine
