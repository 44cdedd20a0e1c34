#pragma once
// A function's two programs, as one backward made them known: for one set of results that gradients flow into.

#include "capture/backward/facts.h"
#include "capture/backward/program_node.h"
#include "capture/function/joint.h"
#include "engine/aot/program.h"
#include "engine/aot/second_order.h"

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hindcast::engine {

class AotCore;

/// Of its values, each once, but for the host.
std::vector<c10::Device> devices_of(const capture::Graph& graph);
/// Goes up with each call.
uint64_t next_number();

struct Halves {
  uint64_t number = next_number();  // the newest have the highest
  capture::Joint joint;
  std::vector<c10::Device> devices;  // of the joint program
  bool draws_in_kernels = false;     // random numbers that are not ATen's
  capture::Joint traced;             // the same as it was recorded: its kernels draw no random numbers. What two traces are compared by
  std::vector<capture::ValueId> saved_values;
  std::vector<Saved> saved;                          // where they are to be had
  std::shared_ptr<const Program> forward, backward;  // backward: null where no gradient was asked for, or none like these
  capture::NodeProgram of_node;                      // the backward, for who captures a graph with it
  std::vector<capture::Facts> tangents;              // by differentiable result: what flows in; {0}: nothing
  std::vector<bool> takes_zeros;                     // by differentiable result: zeros where nothing flows in
  std::shared_ptr<const Halves> whole;               // the one for all results; null: this one is
  SecondOrder second_order;                          // of the whole one
  FoundOnce<std::shared_ptr<AotCore>> with_graph;    // of the whole one: its backward as a compiled function, for create_graph

  /// Its backward was recorded, and not made of another.
  bool is_recorded() const { return traced.graph != nullptr; }
};
/// The one for all results.
inline const std::shared_ptr<const Halves>& whole_of(const std::shared_ptr<const Halves>& halves) {
  return halves->whole ? halves->whole : halves;
}

/// What a gradient must be like for a backward program, but for its sizes: those are its result's.
capture::Facts tangent_facts(const at::Tensor& tangent);
std::vector<capture::Facts> tangents_facts(const torch::autograd::variable_list& tangents);
/// The gradient as the backward program takes it; nullopt: it does not take it.
std::optional<at::Tensor> as_captured(const at::Tensor& tangent, const capture::Facts& captured);
/// A copy as the whole backward program takes it: contiguous. Itself where it is so.
at::Tensor as_contiguous(const at::Tensor& tangent);

/// Primals that live on anyway, by position: parameters.
struct HalvesRequest {
  const AotOptions& options;
  std::vector<uint32_t> lasting;
  std::vector<uint32_t> with_gradients;                           // primals that need a gradient
  std::vector<capture::Facts> tangents;                           // by differentiable result; empty: there is no backward
  std::function<std::vector<at::Tensor>()> primals;               // for compilers of the user's
  torch::autograd::variable_list example_tangents = {};           // the same
  std::vector<uint32_t> leaves = {};                              // primals that take their gradient
  const capture::Joint* traced = nullptr;                         // as it was recorded; null: so is the one that is given
  std::function<std::vector<at::Tensor>()> backward_inputs = {};  // for compilers of the user's, where they are known
  bool is_for_others = false;                                     // it gets a backward of its own when a call has such gradients
  const capture::Joint* with_graph = nullptr;                     // of the same forward: SecondOrder::joint; null: the one that is given
  const char* why_no_second_order = nullptr;                      // SecondOrder::why_not

  void has_second_order_of(const SecondOrder& former) {
    with_graph = former.has_own_joint ? &former.joint : nullptr;
    why_no_second_order = former.why_not;
  }
};
/// Both programs of it are to have kernels, and nothing asks for the bits of ATen's order.
bool both_have_kernels(const AotOptions& options, const capture::Graph& joint);

/// Of the joint program of a backward in which gradients flow into all results, contiguous ones. Programs are as strict as it is (Graph::strict).
std::shared_ptr<const Halves> make_halves(capture::Joint joint, const HalvesRequest& request);
/// For gradients of another layout: `joint` is of the same forward. Null: its backward needs what `whole` does not save.
std::shared_ptr<const Halves> make_backward_beside(const std::shared_ptr<const Halves>& whole, capture::Joint joint,
                                                   const HalvesRequest& request);
/// For gradients that flow into some results.
std::shared_ptr<const Halves> make_backward_of_some(const std::shared_ptr<const Halves>& whole, const std::vector<bool>& flows,
                                                    const HalvesRequest& request);

/// `made` begins with a whole one. Appends a backward for gradients of all results if there are such and the last one has no backward.
void ensure_backward(std::vector<std::shared_ptr<const Halves>>& made, HalvesRequest request);

}  // namespace hindcast::engine
