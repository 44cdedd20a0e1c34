#pragma once
// A compiled function over lists of tensors: the untyped core of aot_function(). Valid C++17.

#include <hindcast/aot_options.h>
#include <hindcast/detail/back_off_policy.h>

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

namespace hindcast::detail {

/// `shape`: the result without its tensors, for a caller who knows its type.
struct FunctionOutput {
  std::vector<at::Tensor> tensors;
  std::shared_ptr<const void> shape;
  std::string facts;  // equal for equal shapes
  Gain gain = Gain::Unknown;
  const void* program = nullptr;  // set by a call that may gain
  std::uint64_t own_ns = 0;       // set by a timed call that ran the function eagerly
  bool is_functions = false;      // in a timed call: the caller must run the function itself, and time it
  std::size_t owned = 0;          // set by the function: how many of its last tensors the caller will write to. Shared memory is copied
  NextCalls next = 0;
};
/// Whether someone owns a tensor that the function reads from outside, and calls AotCore::forget() when it is freed. Otherwise the programs
/// keep it alive.
using HasOwner = std::function<bool(const at::Tensor&)>;
/// Runs the function on these tensors instead of the inputs. Called only during the call.
using RunFunction = c10::function_ref<FunctionOutput(const std::vector<at::Tensor>&)>;

struct FunctionCall {
  std::vector<at::Tensor> inputs;
  std::string facts;            // everything else that the result depends on, as bytes: other bytes need another program
  std::vector<bool> is_static;  // by input: its sizes never become dynamic; may be shorter
  RunFunction function;
  HasOwner has_owner = {};  // empty: no tensor has an owner
  bool is_timed = false;    // the caller reports the time to took()
  /// Each result must behave as if it had an autograd node of its own, although a program has one node for all. A call runs eagerly if one
  /// result depends on nodes that another does not, and a node of several results keeps its saved tensors for its lifetime.
  bool has_separate_results = false;
  bool only_reads = false;          // the function is known not to write to its inputs
  std::string_view why_eager = {};  // the caller's reason why the function cannot run as programs; empty if it can
};

/// The programs of one kind of call, for inspection.
struct AotPrograms {
  std::shared_ptr<const Graph> joint, forward, backward;  // backward: nullptr for a function without a backward
  std::string explanation;                                // what is saved and why
};

/// What a call would run: what is needed to capture the call into a CUDA graph.
struct AotHit {
  std::shared_ptr<const codegen::Plan> plan;
  std::vector<std::int64_t> sizes;  // values of the plan's symbols
  std::vector<at::Tensor> outside;  // tensors that the function reads besides its inputs
  std::vector<at::Tensor> written;  // those of `outside` that it writes to
  std::vector<bool> defined;        // by returned tensor: whether it is defined
  std::string why_not_recorded;     // why the call cannot be captured into a CUDA graph, whatever its plan; empty if it can
};

class HINDCAST_API AotCore {
 public:
  /// Throws std::invalid_argument for a bad option.
  explicit AotCore(AotOptions options);

  FunctionOutput call(const FunctionCall& call);
  /// The program that call() would run. nullopt: the call would be traced or run eagerly. The function does not run.
  std::optional<AotHit> find(const FunctionCall& call) const;
  /// Notes that the caller launched a CUDA graph of what find() returned.
  void note_launch();
  /// Notes that the caller ran the function itself, for a reason of its own.
  NextCalls ran_eagerly();
  /// Notes that call() threw.
  NextCalls threw();
  /// The caller compares so much to find a call that a program may gain less: from now on calls are timed.
  void lookup_is_costly();
  /// Times the backward of a call in which the caller ran the function: FunctionOutput::is_functions.
  void time_backward(const std::vector<at::Tensor>& results);
  /// Reports the time of a timed call; `own_ns`: that of the function alone, or 0 if it did not run.
  NextCalls took(std::uint64_t whole_ns, std::uint64_t own_ns);
  AotStats stats() const;
  /// Newest first.
  std::vector<AotPrograms> programs() const;
  /// Forgets the programs of calls with these FunctionCall::facts.
  void forget(const std::string& facts);
  /// Forgets all programs.
  void reset();

 private:
  class Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace hindcast::detail
