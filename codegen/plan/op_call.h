#pragma once
// How one step that is no event is called on a hit: an ATen op, unboxed where its signature is a common one and through LibTorch's boxed
// stack otherwise; or a kernel.

#include "codegen/plan/prepared_call.h"
#include "hindcast/symbols.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hindcast::codegen {

struct Step;
using Slots = std::vector<at::Tensor>;

/// What a run asks of a kernel for one of Step::leaves, and the kernel's answer. The leaf's Accumulate step does whatever the kernel did
/// not.
struct LeafRequest {
  enum class State : uint8_t {
    None,          // nothing was requested, or the kernel could not fulfil the request
    BufferWanted,  // request: write the result to a buffer of the leaf's own
    AddWanted,     // request: add the result to `gradient`, the leaf's existing `.grad`
    Filled,        // answer: `gradient` is the new buffer
    Added,         // answer: the result was added to `gradient`
  };
  State state = State::None;
  at::Tensor gradient;
};

/// Runs an Op or Mutate step: takes its arguments from the slots, calls ATen or a kernel, puts the results back.
class OpCall {
 public:
  virtual ~OpCall() = default;
  virtual void run(const Step& step, Slots& slots, const capture::Env& env) const = 0;
  /// Whether the call can answer the requests of the step's leaves.
  virtual bool writes_leaves() const { return false; }
  /// As run(), and answers `requests`, which are indexed as Step::leaves. Only if writes_leaves().
  virtual void run_to_leaves(const Step& step, Slots& slots, const capture::Env& env, std::span<LeafRequest>) const {
    run(step, slots, env);
  }
  /// Specialises the call for the layouts of the tensors in `slots` and the sizes in `env`. nullptr: each call must examine its tensors.
  virtual std::unique_ptr<const PreparedCall> prepare(const Step& /*step*/, Slots& /*slots*/, const capture::Env& /*env*/) const {
    return nullptr;
  }
  /// A description for logs. Empty for a single ATen op.
  virtual std::string describe() const { return {}; }
  /// Bytes of host memory that the call holds.
  virtual size_t footprint() const { return 64; }
};

/// The call of a step that is one op. `results`: the graph's, of a user's operator.
std::unique_ptr<const OpCall> make_op_call(const Step& step, std::vector<capture::Value> results);

}  // namespace hindcast::codegen
