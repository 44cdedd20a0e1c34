#pragma once
// The compiler, from a captured graph to a plan with kernels.

#include "capture/graph/replay_check.h"
#include "codegen/kernel/later.h"
#include "codegen/plan/plan.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace hindcast::engine {

struct LowerRequest {
  bool through_aten = false;  // the groups run op by op through ATen, to the stock engine's bits: tells a wrong kernel from a wrong plan
  std::shared_ptr<const capture::ReplayCheck> check;  // null, or what the graph behind the passes and every kernel must compute
  bool (*is_cancelled)() = nullptr;                   // asked before each kernel: a large graph has many
  codegen::RunLater later = nullptr;                  // what kernels are left to that few calls need; null: all is compiled now
  std::vector<uint32_t> own_outputs = {};             // of a program, by position: codegen/passes/own_outputs.h
};

struct Lowered {
  std::shared_ptr<const codegen::Plan> plan;
  size_t groups = 0;               // 0: nothing could be fused
  std::string first_failure = {};  // why a group of those has no kernel and runs through ATen; empty: all have one
};

/// Why there is no plan. What else goes wrong (a compiler that is missing, a pass that fails) is a std::exception of another kind.
class NotLowered : public std::runtime_error {
 public:
  enum class Why {
    WrongResult,  // the check found another result than the capture's, or than ATen's: a bug of hindcast
    Cancelled,
  };
  NotLowered(Why why, const std::string& text) : std::runtime_error(text), why_(why) {}
  Why why() const { return why_; }

 private:
  Why why_;
};

/// Makes the plan. It changes nothing else, and may take seconds.
Lowered lower(const std::shared_ptr<const capture::Graph>& captured, const LowerRequest& request);

}  // namespace hindcast::engine
