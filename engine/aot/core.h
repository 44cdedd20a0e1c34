#pragma once
// A function over lists of tensors that is compiled ahead of time: what aot_function() stands on. Valid C++17.

#include "engine/aot/aot_options.h"
#include "engine/leaving.h"

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <functional>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hindcast::codegen {
class Plan;
}

namespace hindcast::engine {

/// `shape`: what a result is but for its tensors, for who knows its type.
struct FunctionOutput {
  std::vector<at::Tensor> tensors;
  std::shared_ptr<const void> shape;
  std::string facts;  // equal for equal shapes
  Gain gain = Gain::Unknown;
  const void* program = nullptr;  // of a call that may gain
  std::uint64_t own_ns = 0;       // of a timed call that ran the function eagerly
  bool is_functions = false;      // of a timed call: the caller runs the function itself, and times it
  NextCalls next = 0;
};
/// Whether someone owns a tensor that the function reads from outside, and says when it is gone: AotCore::forget(). Else the programs
/// keep it alive.
using HasOwner = std::function<bool(const at::Tensor&)>;
/// Runs the function on these tensors in the place of the inputs. Only called while the call lasts.
using RunFunction = c10::function_ref<FunctionOutput(const std::vector<at::Tensor>&)>;

struct FunctionCall {
  std::vector<at::Tensor> inputs;
  std::string facts;            // all else that the result depends on, as bytes: another program for other bytes
  std::vector<bool> is_static;  // by input: its sizes never become dynamic; may be shorter
  RunFunction function;
  HasOwner has_owner = {};  // empty: nobody
  bool is_timed = false;    // its caller tells took()
  /// Each result must behave as if it had an autograd node of its own, although a program has one node for all. A call runs eagerly if one result
  /// leads to nodes that another does not, and a node of several results keeps its saved tensors as long as it lives.
  bool has_separate_results = false;
  bool only_reads = false;          // the function is known not to write to its inputs
  std::string_view why_eager = {};  // why the function cannot run as programs, which the caller knows; empty: it may
};

/// The programs of one kind of call, to look at.
struct AotPrograms {
  std::shared_ptr<const Graph> joint, forward, backward;  // backward: null where there is none
  std::string explanation;                                // what is saved and why
};

/// What a call would run: what a recording of the call needs.
struct AotHit {
  std::shared_ptr<const codegen::Plan> plan;
  std::vector<std::int64_t> sizes;  // values of its symbols
  std::vector<at::Tensor> outside;  // tensors that the function reads besides its inputs
  std::vector<at::Tensor> written;  // those of them that it writes to
  std::vector<bool> defined;        // by tensor that the function returns: not an undefined one
  std::string why_not_recorded;     // why a CUDA graph cannot contain the call, whatever its plan; empty: it can
};

class HINDCAST_API AotCore {
 public:
  /// Throws std::invalid_argument for a bad option.
  explicit AotCore(AotOptions options);

  FunctionOutput call(const FunctionCall& call);
  /// The program that call() would run. nullopt: the call would be traced or run eagerly. The function does not run.
  std::optional<AotHit> find(const FunctionCall& call) const;
  /// Tells that the caller launched a recording of what find() gave.
  void note_launch();
  /// Tells that the caller ran the function itself, for a reason of its own.
  NextCalls ran_eagerly();
  /// Times the backward of a call in which the caller ran the function: FunctionOutput::is_functions.
  void time_backward(const std::vector<at::Tensor>& results);
  /// Tells what a timed call took; `own_ns`: the function alone, or 0 if it did not run.
  NextCalls took(std::uint64_t whole_ns, std::uint64_t own_ns);
  AotStats stats() const;
  /// The newest first.
  std::vector<AotPrograms> programs() const;
  /// Forgets the programs of calls with these FunctionCall::facts.
  void forget(const std::string& facts);
  /// Forgets all programs.
  void reset();

 private:
  class Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace hindcast::engine
