#pragma once
// The compiler: from a captured graph to a plan with kernels.

#include "capture/graph/replay_check.h"
#include "codegen/kernel/later.h"
#include "codegen/plan/plan.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace hindcast::engine {

struct LowerRequest {
  // Runs the groups op by op through ATen, bitwise equal to the stock engine: this distinguishes a wrong kernel from a wrong plan.
  bool through_aten = false;
  std::shared_ptr<const capture::ReplayCheck> check;  // what the rewritten graph and every kernel must compute; may be nullptr
  bool (*is_cancelled)() = nullptr;                   // asked before each kernel: a large graph has many
  codegen::RunLater later = nullptr;                  // compiles kernels that few calls need; nullptr: all are compiled now
  std::vector<uint32_t> own_outputs = {};             // positions of a program's outputs: codegen/passes/own_outputs.h
};

struct Lowered {
  std::shared_ptr<const codegen::Plan> plan;
  size_t groups = 0;               // 0 if nothing could be fused
  std::string first_failure = {};  // why the first group without a kernel runs through ATen; empty if all groups have kernels
};

/// Why there is no plan. Other failures (a missing compiler, a failing pass) are other std::exceptions.
class NotLowered : public std::runtime_error {
 public:
  enum class Why {
    WrongResult,  // the check found a result that differs from the capture's, or from ATen's: a bug of hindcast
    Cancelled,
  };
  NotLowered(Why why, const std::string& text) : std::runtime_error(text), why_(why) {}
  Why why() const { return why_; }

 private:
  Why why_;
};

/// Makes the plan. Has no other effect. May take seconds.
Lowered lower(const std::shared_ptr<const capture::Graph>& captured, const LowerRequest& request);

}  // namespace hindcast::engine
