#pragma once
// The result of pass 1: the nodes of one backward in the stock engine's execution order, the bytes of the structure (key), the values that
// guards compare (facts), and the tensors that are inputs of the graph.

#include "capture/backward/facts.h"
#include "cache/key.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hindcast::capture {

struct TypedCollector;

enum class NodeKind : uint8_t {
  Typed,       // generated node, read by its generated collector
  Visited,     // read by LibTorch's own visitor
  Program,     // a ProgramNode
  Accumulate,  // AccumulateGrad
  Opaque,      // called as itself
};

/// Hooks that a node had when it was collected.
enum HookBits : uint8_t {
  kTensorPreHooks = 1,
  kRetainGradHooks = 2,
  kPreHooks = 4,
  kPostHooks = 8,
  kPostAccumulateHooks = 16,
};

struct NodeCall {
  torch::autograd::Node* node = nullptr;     // kept alive by the caller's root edges
  torch::autograd::Node* formula = nullptr;  // its fields and formula count: `node`, or the one that a CopySlices runs
  const TypedCollector* typed = nullptr;
  const char* opaque_reason = nullptr;
  NodeKind kind = NodeKind::Opaque;
  uint8_t hooks = 0;
  bool needed = true;  // false: only its hooks and captures run, not its apply
  bool has_captures = false;
  uint32_t first_tensor = 0, tensor_count = 0;  // slots in Collected::tensors
  uint32_t first_input = 0, input_count = 0;    // incoming gradients, numbered over all nodes
  uint32_t first_edge = 0, edge_count = 0;      // in Collected::edges
  uint32_t first_fact = 0;                      // sizes in its input metadata, then its fields
  uint32_t first_field_fact = 0, end_fact = 0;
  uint32_t first_integer = 0;           // in Collected::integers
  uint64_t traceable_hooks = 0;         // fingerprint of its traceable tensor hooks
  uint32_t key_begin = 0, key_end = 0;  // its bytes in Collected::key

  bool writes_to_view() const { return formula != node; }
};

/// Destination of one output of a node. `call` is kNoCall for an edge that leads nowhere (or is not needed).
struct EdgeTarget {
  uint32_t call;
  uint32_t input_nr;
};
inline constexpr uint32_t kNoCall = 0xffffffffu;

/// One gradient that `torch::autograd::grad` returns: input `input_nr` of node `call` becomes result `output`.
struct GradCapture {
  uint32_t call, input_nr, output;
};

/// One call of Engine::execute, with LibTorch's arguments.
struct BackwardCall {
  const torch::autograd::edge_list& roots;
  std::vector<at::Tensor>& root_gradients;
  bool keep_graph;
  bool accumulate_grad;
  const torch::autograd::edge_list& outputs;
};

struct Collected {
  std::vector<NodeCall> calls;  // execution order; NodeCall n of the logs is calls[n - 1] (0 is GraphRoot)
  std::vector<EdgeTarget> edges;
  std::vector<EdgeTarget> roots;      // one per root edge
  std::vector<GradCapture> captures;  // sorted by call
  cache::KeyBytes key;
  Facts facts;
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> integers;  // with CollectOptions::with_history: by node the sizes in its input metadata, then its saved sizes
  uint32_t input_total = 0;
  uint64_t unloads = 0;                        // number of unloaded libraries if code that is looked into may be unloaded; otherwise 0
  bool has_hooks = false, has_opaque = false;  // user code may run
  std::optional<c10::Stream> stream;           // of the first node on an accelerator; nullopt: all are on the CPU
  bool has_one_stream = false;                 // every node has that stream

  void clear() {
    calls.clear();
    edges.clear();
    roots.clear();
    captures.clear();
    key.clear();
    facts.clear();
    tensors.clear();
    integers.clear();
    input_total = 0;
    unloads = 0;
    has_hooks = has_opaque = has_one_stream = false;
    stream.reset();
  }
};

}  // namespace hindcast::capture
