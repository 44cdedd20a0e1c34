#pragma once

#include "cache/key.h"
#include "capture/backward/collected.h"
#include "hindcast/symbols.h"

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

/// A workspace for one call, reused by the next call of this thread. A nested call (none today) makes its own.
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
