#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace hindcast::bench::gpu {

/// Calls of one operator, and what they took on the host.
struct OperatorCalls {
  int64_t count = 0;
  double us = 0;
};
using CallsByName = std::map<std::string, OperatorCalls>;

/// Counts the calls of ATen's operators that this thread makes, or autograd's thread for it, while it lives. Views and new memory do not
/// count, since they launch nothing. What an operator calls belongs to its own call. One at a time.
class AtenCalls {
 public:
  AtenCalls();
  ~AtenCalls();
  AtenCalls(const AtenCalls&) = delete;
  AtenCalls& operator=(const AtenCalls&) = delete;

  int64_t count() const { return count_; }
  /// Tensors read and written, each once a call; of one that is broadcast what there is of it.
  double bytes() const { return bytes_; }
  const CallsByName& by_name() const { return by_name_; }

 private:
  static std::unique_ptr<at::ObserverContext> at_start(const at::RecordFunction& call);
  static void at_end(const at::RecordFunction& call, at::ObserverContext* context);

  const at::CallbackHandle handle_;
  bool is_inside_ = false;  // of a call that counts
  double read_ = 0;         // by it
  int64_t count_ = 0;
  double bytes_ = 0;
  CallsByName by_name_;
};

}  // namespace hindcast::bench::gpu
