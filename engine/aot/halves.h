#pragma once
// A function's two programs, as one backward made them known: for one set of results that gradients flow into.

#include "capture/backward/facts.h"
#include "capture/backward/program_node.h"
#include "capture/function/joint.h"
#include "engine/aot/program.h"

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hindcast::engine {

/// Where a value that the backward needs is to be had, after the forward.
struct Saved {
  enum class From : uint8_t { Primal, Result, Forward };
  From from = From::Forward;
  uint32_t index = 0;  // of the primal, of the result, or of the forward program's output
};

/// Of its values, each once, but for the host.
std::vector<c10::Device> devices_of(const capture::Graph& graph);
/// Goes up with each call.
uint64_t next_halves_number();

struct Halves {
  uint64_t number = next_halves_number();  // the newest have the highest
  capture::Joint joint;
  std::vector<c10::Device> devices;  // of the joint program
  capture::Joint traced;             // the same as it was recorded: its kernels draw no random numbers. What two traces are compared by
  std::vector<capture::ValueId> saved_values;
  std::vector<Saved> saved;                          // where they are to be had
  std::shared_ptr<const Program> forward, backward;  // backward: null where no gradient was asked for
  capture::NodeProgram of_node;                      // the backward, for who captures a graph with it
  std::vector<capture::Facts> tangents;              // by differentiable result: what flowed in; {0}: nothing
};

/// What a gradient must be like for a backward program, but for its sizes: those are its result's.
capture::Facts tangent_facts(const at::Tensor& tangent);
/// The gradient as the backward program takes it; nullopt: it does not take it.
std::optional<at::Tensor> as_captured(const at::Tensor& tangent, const capture::Facts& captured);

/// Primals that live on anyway, by position: parameters.
struct HalvesRequest {
  const AotOptions& options;
  std::vector<uint32_t> lasting;
  std::vector<uint32_t> with_gradients;                        // primals that need a gradient
  const torch::autograd::variable_list* tangents = nullptr;    // of the backward that was traced; null: there was none
  std::function<std::vector<at::Tensor>()> primals;            // for compilers of the user's
  const std::vector<capture::Facts>* tangent_facts = nullptr;  // in the place of `tangents`, where nobody needs examples
  std::vector<uint32_t> leaves = {};                           // primals that take their gradient
  const capture::Joint* traced = nullptr;                      // as it was recorded; null: so is the one that is given
};
/// Both programs are to have kernels, and nothing asks for the bits of ATen's order.
bool both_have_kernels(const AotOptions& options);

std::shared_ptr<const Halves> make_halves(capture::Joint joint, const HalvesRequest& request);

}  // namespace hindcast::engine
