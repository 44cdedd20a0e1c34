#pragma once
// What the thread's state was when a backward began: grad mode, autocast, modes of Python and so on. The stock engine gives it to each
// node. So what user code of one node leaves on the thread is seen by the rest of that node, and by nobody else.

#include <ATen/ThreadLocalState.h>

#include <array>
#include <cstddef>

namespace hindcast::hooks {

class ThreadState {
 public:
  ThreadState();

  /// Whether user code left another state. Cheap: it compares what programs can set.
  bool is_changed() const;
  /// For the end of a node whose user code ran.
  void restore_if_changed() const;

 private:
  using Words = std::array<size_t, 8>;
  static Words of_thread();

  const at::ThreadLocalState state_;
  const Words words_;
};

}  // namespace hindcast::hooks
