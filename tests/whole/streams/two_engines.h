#pragma once
// Programs on the fake device, run by the stock engine and by hindcast.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hindcast/hindcast.h"

namespace hindcast::tests {

/// What a program observes.
class Seen {
 public:
  explicit Seen(int run) : run_(run) {}
  /// The number of this run of the program, from 0, per engine.
  int run() const { return run_; }
  /// Callable on any thread.
  void note(const std::string& what) {
    const std::lock_guard lock(*mutex_);
    notes_.push_back(what);
  }
  /// Read on the current stream of its device.
  void show(const at::Tensor& tensor);
  /// A hook on the tensor's gradient that notes its name and the current streams.
  void hook(const at::Tensor& tensor, const std::string& name);

  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  const int run_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  std::vector<std::string> notes_;
  std::vector<at::Tensor> tensors_;
};

/// Builds everything anew each time.
using Program = std::function<void(Seen&)>;

/// Created on the stream `side`, which the default stream synchronizes with before and after.
at::Tensor on_side(int side, const std::function<at::Tensor()>& make);

struct Expected {
  int backwards = 1;             // that hindcast takes over, of each run
  bool always_captures = false;  // some of them are not found
  bool in_any_order = false;     // notes come from threads of several devices
  bool stock_is_ordered = true;
  std::string fallback;  // why others are left to the stock engine
};

/// Runs it three times on each engine, with several options. Expects equal tensors to the bit, equal notes, no unordered access in either,
/// and no more events than the stock engine's.
void expect_same(const Program& program, const Expected& expected = {});

}  // namespace hindcast::tests
