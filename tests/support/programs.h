#pragma once
// One program, run by the stock engine and by hindcast, compared event by event.
//
// A program writes everything it can observe into a Log: a line per hook call, per exception and per tensor (dtype, sizes, strides, a hash
// of the bits, and the first values for people). It runs once with the stock engine and once under hindcast per way of collecting nodes,
// each time from the same seed and with empty caches. The lines must be equal: bits, order and texts of errors. Nothing that differs from
// run to run (addresses, times) may be written.

#include <ATen/ATen.h>

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hindcast/hindcast.h"

namespace hindcast::tests {

/// The events of one run, in order. Any thread may write.
class Log {
 public:
  void note(std::string event);
  void show(const std::string& name, const at::Tensor& tensor);
  void show(const std::string& name, const std::vector<at::Tensor>& tensors);

  /// Runs `action` and notes how it ended: "ok", or the type and the text of the exception.
  template <class Action>
  void attempt(const std::string& name, Action&& action) {
    try {
      std::forward<Action>(action)();
      note(name + ": ok");
    } catch (...) {
      note(name + ": " + describe_current_exception());
    }
  }

  std::vector<std::string> events() const;

 private:
  static std::string describe_current_exception();

  mutable std::mutex mutex_;
  std::vector<std::string> events_;
};

/// A tensor's properties, to the bit: a user cannot distinguish two tensors with equal text.
std::string describe(const at::Tensor& tensor);

/// What hindcast must have done while a program ran.
enum class Takeover {
  Hits,  ///< at least one backward was found in the cache
  Some,  ///< at least one backward was taken over
  Any,   ///< nothing is required: the stock engine may run every backward
};

using Program = std::function<void(Log&)>;

/// Runs `program` with both engines; its events must be equal.
void expect_same(const Program& program, Takeover takeover = Takeover::Some);

/// The same for a program of several equal steps: the first backward is a miss, later ones are hits.
void expect_same_steps(int steps, const std::function<void(Log&, int)>& step, Takeover takeover = Takeover::Hits);

/// A leaf of normal random values that requires grad.
at::Tensor leaf(at::IntArrayRef sizes, at::TensorOptions options = {});

/// A leaf whose values are 0, 1, 2, ... plus `start`: sums of them are exact in any order.
at::Tensor counting_leaf(at::IntArrayRef sizes, double start = 0);

}  // namespace hindcast::tests
