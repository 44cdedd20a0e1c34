#include "capture/backward/collect.h"

#include "base/check.h"
#include "capture/backward/copy_slices.h"
#include "capture/backward/field_sink.h"
#include "capture/backward/node_class.h"
#include "capture/backward/prefetch.h"
#include "capture/backward/program_node.h"
#include "capture/backward/typed_collectors.h"
#include "capture/backward/visitor.h"
#include "capture/backward/walk.h"
#include "hooks/traceable.h"

#include <ATen/DeviceAccelerator.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <type_traits>
#include <typeinfo>

namespace hindcast::capture {
namespace {

using torch::autograd::Node;

uint8_t hook_bits(Node& node, NodeKind kind) {
  uint8_t bits = 0;
  if (!node.tensor_pre_hooks().empty()) bits |= kTensorPreHooks;
  if (!node.retains_grad_hooks().empty()) bits |= kRetainGradHooks;
  if (!node.pre_hooks().empty()) bits |= kPreHooks;
  if (!node.post_hooks().empty()) bits |= kPostHooks;
  if (kind == NodeKind::Accumulate && node.tensor_post_acc_grad_hooks() != nullptr) bits |= kPostAccumulateHooks;
  return bits;
}

// The key bytes that every node has, appended in one piece.
struct KeyHeader {
  uintptr_t type;
  uint32_t input_count, edge_count;
  NodeKind kind;
  uint8_t hooks;
  uint8_t wanted;
  uint8_t zeros[5] = {};
};
static_assert(std::has_unique_object_representations_v<KeyHeader> && std::has_unique_object_representations_v<EdgeTarget>);

// The devices that gradients are on, and the streams of the nodes there.
class Devices {
 public:
  explicit Devices(const CollectOptions& options) : options_(options) {}

  /// The device's bits in an input's word of the key: 0 for the CPU, whatever its index.
  uint64_t see(const Node& node, uint32_t input, const torch::autograd::InputMetadata& metadata) {
    const c10::Device device = metadata.device();
    if (device.is_cpu()) [[likely]]
      return 0;
    if (device.type() != accelerator_) find_accelerator(node, input, device);
    if (last_ != &node) {  // a node's stream is that of its first input on the accelerator
      last_ = &node;
      ++nodes_;
      if (!stream_) stream_ = metadata.stream();
      is_one_ = is_one_ && *stream_ == metadata.stream();
    }
    return uint64_t(static_cast<uint8_t>(device.type())) << 48 | uint64_t(static_cast<uint8_t>(device.index())) << 56;
  }
  /// Returns the accelerator's word of the key.
  uint64_t finish(Collected& out) const {
    if (!stream_) return 0;
    out.stream = stream_;
    out.has_one_stream = is_one_ && nodes_ == out.calls.size();
    return options_.accelerator_state ? options_.accelerator_state(*accelerator_) : 0;
  }

 private:
  void find_accelerator(const Node& node, uint32_t input, c10::Device device) {
    if (!options_.devices.contains(device.type()) || at::accelerator::getAccelerator() != device.type())
      throw DeviceNotTaken(base::format("{} input {}: device {}, which is not taken", node.name(), input, device.str()));
    accelerator_ = device.type();
  }

  const CollectOptions& options_;
  std::optional<c10::DeviceType> accelerator_;
  std::optional<c10::Stream> stream_;
  const Node* last_ = nullptr;
  size_t nodes_ = 0;  // nodes that have a stream
  bool is_one_ = true;
};

// What the engine checks when a gradient flows in: dtype and layout go into the key, sizes are facts.
void collect_inputs(Node& node, uint32_t call, Devices& devices, bool with_history, Collected& out, std::vector<FactOrigin>* origins) {
  const uint32_t count = node.num_inputs();
  for (uint32_t i = 0; i < count; ++i) {
    const auto& metadata = node.input_metadata(i);
    if (metadata.was_default_constructed()) {
      cache::append(out.key, uint64_t{0});
      continue;
    }
    if (metadata.is_nested_tensor()) HC_UNSUPPORTED("{} input {}: nested tensor", node.name(), i);
    const uint64_t device = devices.see(node, i, metadata);
    const auto sizes = metadata.shape_as_dim_vector();
    const auto grad_dtype = metadata.grad_dtype();
    const uint64_t word = 1 | uint64_t(metadata.dtype().toScalarType()) << 8 | uint64_t(metadata.layout()) << 16 |
                          uint64_t(metadata.is_tensor_subclass()) << 24 | uint64_t(grad_dtype ? uint8_t(*grad_dtype) : 0xff) << 32 |
                          uint64_t(sizes.size()) << 40 | device;
    cache::append(out.key, word);
    for (uint32_t d = 0; d < sizes.size(); ++d) {
      out.facts.push_back(sizes[d].guard_int(__FILE__, __LINE__));
      if (with_history) out.integers.push_back(out.facts.back());
      if (origins) origins->push_back({FactKind::InputSize, call, i, d});
    }
  }
}

const char* collect_recomputed_backward(ProgramNode& node, FieldSink& sink) {
  const auto formula = node.recomputed_backward();
  if (!formula) return "a function's backward that cannot be differentiated as a program";
  sink.constant(formula->number);
  sink.constant(formula->bindings.floats);
  for (const int64_t size : formula->bindings.ints) sink.size(size);
  for (const auto& [value, tensor] : formula->given) sink.tensor(tensor);
  for (const auto& saved : formula->saved) sink.tensor(saved.tensor);
  return sink.opaque_reason;
}

const char* collect_program(const ProgramNode& node, FieldSink& sink) {
  const NodeProgram* program = node.program();
  if (program == nullptr) return node.has_several_streams() ? "a function's backward that has several streams" : kRunsItself;
  sink.constant(program->number);
  for (const auto& variable : node.saved()) sink.saved(variable);
  for (const int64_t number : node.integers()) sink.size(number);
  return sink.opaque_reason;
}

// Returns nullptr, or why the node must be called as itself. The caller holds the node's mutex.
const char* collect_fields(const NodeCall& call, uint32_t index, Visitor& visitor, FieldSink& sink, Collected& out,
                           std::vector<FactOrigin>* origins) {
  sink.begin_node(index, *call.formula);
  std::unique_lock<std::mutex> lock;
  if (call.writes_to_view()) {
    lock = std::unique_lock(node_mutex(*call.formula));
    cache::append(out.key, reinterpret_cast<uintptr_t>(&typeid(*call.formula)));
    const auto& slices = static_cast<const torch::autograd::CopySlices&>(*call.node);
    sink.geometry(slices.base);
    sink.geometry(slices.view);
  }
  if (call.kind == NodeKind::Visited) return visitor.collect(*call.formula, index, out, origins, call.writes_to_view() ? kPieceFields : 0);
  if (call.kind == NodeKind::Program && sink.integers != nullptr)
    return collect_recomputed_backward(static_cast<ProgramNode&>(*call.formula), sink);
  if (call.kind == NodeKind::Program) return collect_program(static_cast<const ProgramNode&>(*call.formula), sink);
  call.typed->collect(*call.formula, sink);
  return sink.opaque_reason;
}

void collect_node(NodeCall& call, uint32_t index, const CollectOptions& options, Devices& devices, Unloads& unloads, Visitor& visitor,
                  FieldSink& sink, Collected& out, std::vector<FactOrigin>* origins) {
  Node& node = *call.node;
  const std::lock_guard lock(node_mutex(node));
  const NodeClass node_class = classify(node, unloads);
  call.formula = node_class.writes_to_view ? written_by(node).get() : &node;
  if (call.formula == nullptr) {
    if (call.needed) throw CannotCollect("an in-place write to a view was released");
    call.formula = &node;
  }
  call.kind = options.all_opaque && node_class.kind != NodeKind::Accumulate ? NodeKind::Opaque : node_class.kind;
  call.typed = node_class.typed;
  call.opaque_reason = node_class.opaque_reason;
  if (options.use_visitor && call.kind == NodeKind::Typed) call.kind = NodeKind::Visited;
  // CopyBackwards, of copy_() and of writes to slices, has neither tensors nor sizes: only the source's options, which are in the key.
  if (options.with_history && call.kind == NodeKind::Visited && typeid(*call.formula) != typeid(torch::autograd::CopyBackwards)) {
    call.kind = NodeKind::Opaque;
    call.opaque_reason = "a node without a typed collector, in a backward that is to be differentiated";
  }
  call.hooks = hook_bits(node, call.kind);
  call.input_count = node.num_inputs();
  call.first_tensor = static_cast<uint32_t>(out.tensors.size());
  call.first_fact = static_cast<uint32_t>(out.facts.size());

  const size_t header_at = out.key.size();
  call.key_begin = static_cast<uint32_t>(header_at);
  cache::append(out.key, KeyHeader{reinterpret_cast<uintptr_t>(&typeid(node)), call.input_count, call.edge_count, call.kind, call.hooks,
                                   static_cast<uint8_t>(call.needed | call.has_captures << 1)});
  cache::append_bytes(out.key, out.edges.data() + call.first_edge, call.edge_count * sizeof(EdgeTarget));
  if (call.hooks & kTensorPreHooks) {
    call.traceable_hooks = hooks::traceable_fingerprint(node);
    cache::append(out.key, call.traceable_hooks);
    if (call.traceable_hooks != 0) unloads.count();
  }
  call.first_integer = static_cast<uint32_t>(out.integers.size());
  collect_inputs(node, index, devices, options.with_history, out, origins);
  call.first_field_fact = static_cast<uint32_t>(out.facts.size());

  if (call.needed && (call.kind == NodeKind::Typed || call.kind == NodeKind::Visited || call.kind == NodeKind::Program)) {
    const size_t key_size = out.key.size(), fact_count = out.facts.size();
    const char* reason = collect_fields(call, index, visitor, sink, out, origins);
    if (reason) {  // this node cannot be looked into now: drop its fields, call it as itself
      out.key.resize(key_size);
      out.facts.resize(fact_count);
      if (origins) origins->resize(fact_count);
      out.tensors.resize(call.first_tensor);
      call.kind = NodeKind::Opaque;
      call.opaque_reason = reason;
      out.key[header_at + offsetof(KeyHeader, kind)] = static_cast<uint8_t>(NodeKind::Opaque);
    }
  }
  call.tensor_count = static_cast<uint32_t>(out.tensors.size()) - call.first_tensor;
  call.end_fact = static_cast<uint32_t>(out.facts.size());
  call.key_end = static_cast<uint32_t>(out.key.size());
  out.has_hooks |= call.hooks != 0;
  out.has_opaque |= call.needed && call.kind == NodeKind::Opaque;
}

// A large graph is in no cache: a node takes some ten cache lines, each tensor that it saved some three more. They are prefetched, the
// tensors when the node that refers to them should have arrived.
constexpr uint32_t kNodesAhead = 6, kTensorsAhead = 3;
constexpr size_t kLargeGraph = 2000;  // nodes; most of a smaller graph is in a cache, and prefetching would cost more than it saves

void prefetch_node(const Node* node) { prefetch_bytes(node, sizeof(Node) + 2 * sizeof(torch::autograd::SavedVariable)); }

void prefetch_tensors(Node& node) {
  const TypedCollector* typed = find_typed_collector(node);
  if (typed == nullptr || typed->prefetch == nullptr) return;
  const std::unique_lock lock(node_mutex(node), std::try_to_lock);  // another thread may be releasing what it saved
  if (lock) typed->prefetch(node);
}

}  // namespace

void collect(const BackwardCall& call, const CollectOptions& options, const cache::KeyBytes& state, Collected& out) {
  static thread_local Walk walk;
  out.clear();
  cache::append_bytes(out.key, state.data(), state.size());
  const size_t accelerator_at = out.key.size();
  cache::append(out.key, uint64_t{0});
  const size_t unloads_at = out.key.size();
  cache::append(out.key, uint64_t{0});
  walk.run(call, out);
  cache::append_size(out.key, out.roots.size());
  for (const auto& root : out.roots) {
    cache::append(out.key, root.call);
    cache::append(out.key, root.input_nr);
  }
  cache::append_size(out.key, out.captures.size());
  for (const auto& capture : out.captures) {
    cache::append(out.key, capture.call);
    cache::append(out.key, capture.input_nr);
    cache::append(out.key, capture.output);
  }
  Devices devices(options);
  Unloads unloads;
  Visitor visitor;
  FieldSink sink(out.key, out.facts, out.tensors);
  if (options.with_history) sink.integers = &out.integers;
  const size_t count = out.calls.size();
  const bool large = count >= kLargeGraph;
  for (uint32_t i = 0; i < count; ++i) {
    if (i + kNodesAhead < count) prefetch_node(out.calls[i + kNodesAhead].node);
    if (large && i + kTensorsAhead < count) prefetch_tensors(*out.calls[i + kTensorsAhead].node);
    out.calls[i].first_input = out.input_total;
    collect_node(out.calls[i], i, options, devices, unloads, visitor, sink, out, nullptr);
    out.input_total += out.calls[i].input_count;
  }
  const uint64_t word = devices.finish(out);
  std::memcpy(&out.key[accelerator_at], &word, sizeof(word));
  out.unloads = unloads.asked();
  std::memcpy(&out.key[unloads_at], &out.unloads, sizeof(out.unloads));
}

std::vector<FactOrigin> describe_facts(const Collected& collected, const CollectOptions& options, uint32_t first_call) {
  Collected again;
  again.calls = collected.calls;
  again.edges = collected.edges;
  std::vector<FactOrigin> origins;
  Devices devices(options);
  Unloads unloads;
  Visitor visitor;
  FieldSink sink(again.key, again.facts, again.tensors);
  sink.origins = &origins;
  if (first_call < collected.calls.size())
    origins.assign(collected.calls[first_call].first_fact, {FactKind::TensorStride, first_call, 0, 0});
  for (uint32_t i = first_call; i < again.calls.size(); ++i) {
    collect_node(again.calls[i], i, options, devices, unloads, visitor, sink, again, &origins);
  }
  const auto rest = collected.facts.end() - static_cast<ptrdiff_t>(std::min(again.facts.size(), collected.facts.size()));
  if (origins.size() != collected.facts.size() || !std::equal(rest, collected.facts.end(), again.facts.begin())) {
    throw CannotCollect("what a node holds was changed during the backward");
  }
  return origins;
}

bool is_as_collected(const Collected& collected, uint32_t index) {
  const NodeCall& call = collected.calls[index];
  Node& node = *call.node;
  if (hook_bits(node, call.kind) & ~call.hooks) return false;
  if (call.traceable_hooks != 0 && hooks::traceable_fingerprint(node) != call.traceable_hooks) return false;
  if (!call.needed || call.first_field_fact == call.end_fact) return true;
  static thread_local Collected scratch;
  scratch.clear();
  const struct Clear {
    ~Clear() { scratch.clear(); }  // its tensors must not outlive this check
  } clear;
  const std::lock_guard lock(node_mutex(node));
  if (call.writes_to_view() && written_by(node).get() != call.formula) return false;
  try {
    Visitor visitor;
    FieldSink sink(scratch.key, scratch.facts, scratch.tensors);
    if (collect_fields(call, 0, visitor, sink, scratch, nullptr)) return false;
  } catch (const std::exception&) {
    return false;
  }
  const auto fields = collected.facts.begin();
  return std::equal(fields + call.first_field_fact, fields + call.end_fact, scratch.facts.begin(), scratch.facts.end());
}

std::string field_name(const Collected& collected, const FactOrigin& origin) {
  if (origin.call == kRootGradient) return "root gradient";
  if (origin.kind == FactKind::InputSize) return "input " + std::to_string(origin.field);
  const NodeCall& call = collected.calls.at(origin.call);
  uint32_t field = origin.field;
  if (call.writes_to_view()) {
    if (field < kPieceFields) return field == 0 ? "base" : "view";
    field -= kPieceFields;
  }
  if (call.typed && field < call.typed->field_count) return call.typed->fields[field];
  return "field " + std::to_string(field);
}

}  // namespace hindcast::capture
