#pragma once
// A function's forward and backward program, for one set of results that get gradients. They are compiled when a backward has shown it.

#include "capture/backward/facts.h"
#include "capture/backward/program_node.h"
#include "capture/function/joint.h"
#include "engine/aot/program.h"
#include "engine/aot/second_order.h"

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hindcast::detail {
class AotCore;
}

namespace hindcast::engine {

/// The devices of the graph's values, each once, without the CPU.
std::vector<c10::Device> devices_of(const capture::Graph& graph);
/// Increases with each call.
uint64_t next_number();

struct ProgramPair {
  uint64_t number = next_number();  // the newest has the highest
  capture::Joint joint;
  std::vector<c10::Device> devices;  // of the joint program
  bool draws_in_kernels = false;     // kernels draw random numbers that are not ATen's
  capture::Joint traced;             // the joint program as traced, before kernels draw random numbers: used to compare traces
  std::vector<capture::ValueId> saved_values;
  std::vector<Saved> saved;                          // where to find saved_values
  std::shared_ptr<const Program> forward, backward;  // backward: nullptr if no gradients, or none like these, were needed yet
  capture::NodeProgram of_node;                      // the backward, for inlining into a captured backward graph
  std::vector<capture::Facts> tangents;              // by differentiable result: the incoming gradient; {0} if no gradient flows into it
  std::vector<bool> wants;                           // by primal: its gradient is computed; empty: each that the function's node has
  std::vector<bool> takes_zeros;                     // by differentiable result: takes zeros if no gradient comes in
  std::shared_ptr<const ProgramPair> whole;          // the ProgramPair for all results; nullptr if these are
  SecondOrder second_order;                          // only if `whole` is nullptr
  // For the node of a history group:
  std::optional<capture::Joint> for_derivatives;  // SecondOrder::joint with gradients of its results alone
  std::vector<bool> needs_saved, needs_primals;   // by `saved` and by SecondOrder::primals: whether it reads them. Empty: it may read all
  FoundOnce<std::shared_ptr<detail::AotCore>> with_graph;  // the backward as a compiled function, for create_graph; as second_order

  /// True if its backward was traced, not derived from another.
  bool is_recorded() const { return traced.graph != nullptr; }
};
/// The ProgramPair for all results.
inline const std::shared_ptr<const ProgramPair>& whole_of(const std::shared_ptr<const ProgramPair>& pair) {
  return pair->whole ? pair->whole : pair;
}

/// The properties that a backward program requires of a gradient, except its sizes, which are its result's.
capture::Facts tangent_facts(const at::Tensor& tangent);
std::vector<capture::Facts> tangents_facts(const torch::autograd::variable_list& tangents);
/// The gradient in the form that the backward program accepts; nullopt if it cannot be brought into that form.
std::optional<at::Tensor> as_captured(const at::Tensor& tangent, const capture::Facts& captured);
/// The gradient as the backward program for all results takes it: contiguous. Copied only if necessary.
at::Tensor as_contiguous(const at::Tensor& tangent);

/// What compile_pair() and its variants need besides the joint program. `lasting`: primals that stay alive anyway, such as parameters.
struct PairRequest {
  const AotOptions& options;
  std::vector<uint32_t> lasting;
  std::vector<uint32_t> with_gradients;                           // primals that need a gradient
  std::vector<capture::Facts> tangents;                           // by differentiable result; empty if there is no backward
  std::function<std::vector<at::Tensor>()> primals;               // example inputs for the user's compilers
  torch::autograd::variable_list example_tangents = {};           // example gradients for the user's compilers
  std::vector<uint32_t> leaves = {};                              // primals that are leaf tensors and need a gradient
  const capture::Joint* traced = nullptr;                         // ProgramPair::traced; nullptr: the given joint program
  std::function<std::vector<at::Tensor>()> backward_inputs = {};  // example inputs of the backward; empty: computed from `primals`
  bool is_for_others = false;                                     // compiles no backward yet: other ProgramPair have the one needed now
  const capture::Joint* with_graph = nullptr;                     // SecondOrder::joint; nullptr: the given joint program
  bool has_own_joint = false;                                     // SecondOrder::has_own_joint
  const char* why_no_second_order = nullptr;                      // SecondOrder::why_not
  bool asks_for_second_order = false;                             // SecondOrder::was_asked_for
  bool recomputes_results = false;                                // SecondOrder::recomputes_results
  bool is_of_group = false;                                       // ProgramPair::for_derivatives

  void has_second_order_of(const SecondOrder& former) {
    has_own_joint = former.has_own_joint;
    with_graph = has_own_joint || !former.joint.known.empty() ? &former.joint : nullptr;
    why_no_second_order = former.why_not;
    asks_for_second_order = former.was_asked_for;
    recomputes_results = former.recomputes_results;
  }
};
/// True if both programs will have kernels, and results need not be bitwise equal to ATen's.
bool both_have_kernels(const AotOptions& options, const capture::Graph& joint);

/// Compiles the joint program of a backward with contiguous gradients of all results. The programs inherit its Graph::bitwise.
std::shared_ptr<const ProgramPair> compile_pair(capture::Joint joint, const PairRequest& request);
/// Compiles a backward for gradients of another layout. `joint` has the same forward as `whole`. Returns nullptr if the backward needs
/// values that `whole` does not save.
std::shared_ptr<const ProgramPair> make_backward_beside(const std::shared_ptr<const ProgramPair>& whole, capture::Joint joint,
                                                        const PairRequest& request);
/// Compiles a backward from gradients of only some results, or to gradients of only some primals. `wants`: ProgramPair::wants.
std::shared_ptr<const ProgramPair> make_backward_of_some(const std::shared_ptr<const ProgramPair>& whole, const std::vector<bool>& flows,
                                                         const std::vector<bool>& wants, const PairRequest& request);

/// `made` begins with the ProgramPair for all results. If the last one has no backward and there are differentiable results, appends a
/// backward for gradients of all results.
void ensure_backward(std::vector<std::shared_ptr<const ProgramPair>>& made, PairRequest request);

}  // namespace hindcast::engine
