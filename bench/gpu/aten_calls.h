#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>

namespace hindcast::bench::gpu {

/// Counts the calls of ATen's operators on this thread, while it lives. Views and new memory do not count, since they launch nothing. What
/// an operator calls belongs to its own call. One at a time.
class AtenCalls {
 public:
  AtenCalls();
  ~AtenCalls();
  AtenCalls(const AtenCalls&) = delete;
  AtenCalls& operator=(const AtenCalls&) = delete;

  int64_t count() const { return count_; }
  /// Tensors read and written, each once a call; of one that is broadcast what there is of it.
  double bytes() const { return bytes_; }

 private:
  static std::unique_ptr<at::ObserverContext> at_start(const at::RecordFunction& call);
  static void at_end(const at::RecordFunction& call, at::ObserverContext* context);

  const at::CallbackHandle handle_;
  int depth_ = 0;    // of calls that count
  double read_ = 0;  // by the outermost of them
  int64_t count_ = 0;
  double bytes_ = 0;
};

}  // namespace hindcast::bench::gpu
