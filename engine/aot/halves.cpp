#include "engine/aot/halves.h"

#include "base/footprint.h"
#include "base/log.h"
#include "base/trace.h"
#include "codegen/partition/random_numbers.h"
#include "codegen/partition/split.h"
#include "engine/aot/names.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/trace/graph_records.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

namespace hindcast::engine {

using capture::Facts;
using capture::ValueId;

namespace {

Saved find_saved(const capture::Joint& joint, ValueId value, uint32_t number) {
  const auto place = [&](auto list) { return static_cast<uint32_t>(std::find(list.begin(), list.end(), value) - list.begin()); };
  if (const uint32_t primal = place(joint.primal_values()); primal < joint.primals) return {Saved::From::Primal, primal};
  if (const uint32_t result = place(joint.result_values()); result < joint.results) return {Saved::From::Result, result};
  return {Saved::From::Forward, joint.results + number};
}

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

// Also where LibTorch is asked for deterministic algorithms: equal inputs give equal bits whatever was compiled before.
bool is_strict() { return at::globalContext().deterministicAlgorithms(); }

// Where nobody compares the programs with the function.
bool may_draw_in_kernels(const AotOptions& options) {
  return !options.fallback_random && options.check_every == 0 && both_have_kernels(options);
}

std::shared_ptr<const capture::Graph> numbered(const std::shared_ptr<const capture::Graph>& graph, std::string_view role) {
  auto copy = std::make_shared<capture::Graph>(*graph);
  copy->id = static_cast<uint32_t>(stats_recorder().add_graph());
  copy->strict = is_strict();
  HC_LOG(AotGraphs, Info, "{}", copy->print());
  if (base::tracing()) record_graph(*copy, role);
  return copy;
}

void record_joint_of(const capture::Graph& joint, const Halves& halves) {
  const uint32_t forward = halves.forward->graph()->id;
  record_joint(joint, forward, halves.backward ? halves.backward->graph()->id : forward);
}

}  // namespace

bool both_have_kernels(const AotOptions& options) {
  const auto has_kernels = [](const ProgramCompiler& compiler) {
    return !compiler.function() && replay_of(compiler.compiler() ? compiler.compiler() : default_compiler()) == Replay::Kernels;
  };
  return !is_strict() && has_kernels(options.fw_compiler) && has_kernels(options.bw_compiler);
}

Facts tangent_facts(const at::Tensor& tangent) {
  Facts facts;
  if (!tangent.defined()) return {0};
  const at::Tensor plain = tangent.requires_grad() ? tangent.tensor_data() : tangent;
  capture::append_tensor_facts(plain, facts);
  facts.erase(facts.begin() + 1, facts.begin() + 1 + plain.dim());
  return facts;
}

std::optional<at::Tensor> as_captured(const at::Tensor& tangent, const Facts& captured) {
  if (tangent_facts(tangent) == captured) return tangent;
  if (!tangent.defined() || captured == Facts{0}) return std::nullopt;
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor copy = tangent.contiguous();
  if (tangent_facts(copy) != captured) return std::nullopt;
  return copy;
}

uint64_t next_halves_number() {
  static std::atomic<uint64_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::vector<c10::Device> devices_of(const capture::Graph& graph) {
  std::vector<c10::Device> devices;
  for (const capture::Value& value : graph.values) {
    if (value.device.is_cpu() || value.device.is_meta()) continue;
    if (std::find(devices.begin(), devices.end(), value.device) == devices.end()) devices.push_back(value.device);
  }
  return devices;
}

std::shared_ptr<const Halves> make_halves(capture::Joint joint, const HalvesRequest& request) {
  auto halves = std::make_shared<Halves>();
  halves->devices = devices_of(*joint.graph);
  halves->traced = request.traced != nullptr ? *request.traced : joint;
  if (may_draw_in_kernels(request.options)) joint = codegen::draw_in_kernels(joint);
  capture::Partitioned parts;
  const bool has_backward = request.tangents != nullptr || (request.tangent_facts != nullptr && !request.tangent_facts->empty());
  if (has_backward) {
    const auto made = request.options.partition(joint, {request.options.memory_budget, request.lasting});
    if (!made || !made->forward || !made->backward) throw std::runtime_error("AotOptions::partition gave no programs");
    parts = *made;
    if (request.tangent_facts != nullptr) halves->tangents = *request.tangent_facts;
    if (request.tangents != nullptr) {
      for (const at::Tensor& tangent : *request.tangents) halves->tangents.push_back(tangent_facts(tangent));
    }
  } else {
    parts = codegen::split(joint, {});
  }
  for (uint32_t i = 0; i < parts.saved.size(); ++i) halves->saved.push_back(find_saved(joint, parts.saved[i], i));
  halves->saved_values = parts.saved;
  const AotOptions& options = request.options;
  if (options.fw_compiler.is_users() || options.bw_compiler.is_users() || base::tracing() ||
      base::enabled(base::Channel::AotGraphs, base::Level::Info)) {
    const capture::ValueNames names = name_values(joint);
    parts.forward = with_names(parts.forward, names);
    if (parts.backward) parts.backward = with_names(parts.backward, names);
  }
  halves->forward =
      std::make_shared<Program>(numbered(parts.forward, "forward of a function"), options.fw_compiler, options.async, request.primals);
  if (has_backward) {
    const auto examples = [&] {
      const auto primals = request.primals();
      const auto outputs =
          Program(parts.forward, compilers::eager(), false, {}).run(primals, capture::bindings_at_capture(*joint.graph->symbols));
      std::vector<at::Tensor> inputs;
      for (const Saved& saved : halves->saved) {
        inputs.push_back(saved.from == Saved::From::Primal ? primals[saved.index] : outputs[saved.index]);
      }
      inputs.insert(inputs.end(), request.tangents->begin(), request.tangents->end());
      return inputs;
    };
    halves->backward = std::make_shared<Program>(numbered(parts.backward, "backward of a function"), options.bw_compiler, options.async,
                                                 examples, request.leaves);
  }
  if (base::tracing()) record_joint_of(*joint.graph, *halves);
  if (halves->backward) halves->of_node = {halves->backward->graph(), request.with_gradients, next_number()};
  halves->joint = std::move(joint);
  const capture::Graph &joint_graph = *halves->joint.graph, &traced = *halves->traced.graph;
  size_t bytes_of_names = base::footprint(halves->joint.primal_names);
  for (const std::string& name : halves->joint.primal_names) bytes_of_names += base::footprint_beyond<15>(name);
  halves->forward->add_owners_bytes(bytes_of_names + joint_graph.footprint(parts.forward.get()) +
                                    (&joint_graph == &traced ? 0 : traced.footprint(&joint_graph)));
  return halves;
}

}  // namespace hindcast::engine
