#include "engine/call/workspace.h"

#include <utility>

namespace hindcast::engine {
namespace {

std::unique_ptr<Workspace>& spare() {
  static thread_local std::unique_ptr<Workspace> spare;
  return spare;
}

}  // namespace

BorrowedWorkspace::BorrowedWorkspace() : work_(spare() ? std::move(spare()) : std::make_unique<Workspace>()) {}

BorrowedWorkspace::~BorrowedWorkspace() {
  work_->collected.clear();  // its tensors must not outlive the call
  spare() = std::move(work_);
}

}  // namespace hindcast::engine
