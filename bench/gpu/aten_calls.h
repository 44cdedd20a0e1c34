#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace hindcast::bench::gpu {

/// Calls of one operator, and their time on the host.
struct OperatorCalls {
  int64_t count = 0;
  double us = 0;
};
using CallsByName = std::map<std::string, OperatorCalls>;

/// While it lives, counts the calls of ATen's operators by this thread, or by autograd's thread for it. Views and allocations do not count,
/// since they launch nothing. Nested calls belong to the outer operator's call. One at a time.
class AtenCalls {
 public:
  AtenCalls();
  ~AtenCalls();
  AtenCalls(const AtenCalls&) = delete;
  AtenCalls& operator=(const AtenCalls&) = delete;

  int64_t count() const { return count_; }
  /// Tensors read and written, each once per call; a broadcast one with its real size.
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
