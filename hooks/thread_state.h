#pragma once
// The thread's state when a backward began: grad mode, autocast, Python modes and so on. The stock engine sets it for each node, so changes
// that a node's user code leaves on the thread are visible to the rest of that node only.

#include <ATen/ThreadLocalState.h>

#include <array>
#include <cstddef>

namespace hindcast::hooks {

class ThreadState {
 public:
  ThreadState();

  /// Whether user code changed the state. Cheap: compares what programs can set.
  bool is_changed() const;
  /// Called at the end of a node whose user code ran.
  void restore_if_changed() const;

 private:
  using Words = std::array<size_t, 8>;
  static Words of_thread();

  const at::ThreadLocalState state_;
  const Words words_;
};

}  // namespace hindcast::hooks
