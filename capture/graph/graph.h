#pragma once
// One captured backward: SSA over tensors, in the stock engine's order. It holds no mutation except into `.grad`.
//
//   values   graph inputs (gradients that flow in at the start, tensors that nodes saved) and results of instrs
//   instrs   ATen calls; between them, in order: hooks, opaque nodes, accumulation, captures, release of saved tensors
//   symbols  sizes and scalars that may change from one call to the next, and the relations that must hold between them
//
// Hook and opaque instrs are boundaries: what they return may have other shapes, dtypes or be undefined next time. The
// ATen instrs between two boundaries are a *segment*; a graph compiler gets the graph and returns one function a segment.

#include "capture/symbols/symbols.h"
#include "base/api.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace hindcast::capture {

struct ValueId {
  uint32_t index = 0xffffffffu;
  bool defined() const { return index != 0xffffffffu; }
  bool operator==(const ValueId&) const = default;
};

/// Most have one or two, which need no memory of their own.
using ValueIds = c10::SmallVector<ValueId, 2>;

/// A tensor of the graph as it was seen at capture. Sizes are exact expressions; strides are those of the capture.
struct Value {
  at::ScalarType dtype = at::ScalarType::Undefined;
  at::Device device = at::kCPU;
  std::vector<ExprId> sizes;
  std::vector<int64_t> strides;
  bool defined = true;   // false: the boundary that makes it returned an undefined tensor
  bool is_view = false;  // of another value's memory
};

enum class InstrKind : uint8_t {
  NodeStart,   // the steps of node `call` follow
  Op,          // an ATen call without effects
  Mutate,      // an in-place ATen call on a fresh copy of its target: functional seen from outside
  AddGrads,    // the engine's sum of two gradients that flow into one input; the first is written to where that is allowed
  Hook,        // user hooks of one node and stage; boundary
  CallNode,    // an autograd node called as itself; boundary
  Accumulate,  // AccumulateGrad: inputs[0] into the leaf's .grad; a boundary when the leaf has post-accumulate hooks
  Capture,     // inputs[0] becomes a result of grad()
  Release,     // the node's saved tensors are given back (unless retain_graph)
};

enum class HookStage : uint8_t { TensorPre, Pre, Post };

/// What one fact of a boundary's results was at capture: a number, or the value of a dynamic size.
struct FactPattern {
  int64_t value = 0;
  std::optional<ExprId> expr;
};

/// One argument of an ATen call.
struct Arg {
  enum class Kind : uint8_t { Constant, Value, ValueList, OptionalValueList, Int, IntList, Float };
  Kind kind = Kind::Constant;
  c10::IValue constant;
  ValueIds values;                    // Value: one
  c10::SmallVector<ExprId, 2> exprs;  // Int, Float: one
};

/// A view taken of a value before a write: the op with its arguments; the viewed tensor is argument `self_arg`.
struct ViewStep {
  c10::OperatorHandle op;
  std::vector<Arg> args;
  uint32_t self_arg = 0;
  uint32_t output = 0;  // which of the op's results
};

struct Instr {
  InstrKind kind = InstrKind::Op;
  HookStage stage = HookStage::TensorPre;
  uint32_t call = 0;  // the node it belongs to, an index into Graph::node_names
  std::optional<c10::OperatorHandle> op;
  std::vector<Arg> args;  // Op and Mutate: in schema order
  ValueIds inputs;        // the others: gradients in, in order (may be undefined); NodeStart: those that waited
  ValueIds outputs;
  std::vector<ViewStep> views;         // Mutate: from the copy to the written tensor
  ValueId base;                        // Mutate: the value that is copied
  uint32_t target_arg = 0;             // Mutate: which argument is written
  uint32_t result = 0;                 // Capture: which result
  uint32_t buffer_events = 0;          // boundaries: how many of Graph::buffer_events precede it
  uint32_t kept_inputs = 0;            // Hook at stage Post: how many of `inputs` are the node's own inputs (they come last)
  std::vector<FactPattern> expected;   // boundaries: facts of all outputs at capture
  bool post_accumulate_hooks = false;  // Accumulate: user code runs
};

/// User code runs: it may change hooks and saved tensors of all nodes to come.
bool is_boundary(const Instr& instr);

template <class Visit>
void for_each_use(const Instr& instr, Visit visit) {
  for (const Arg& arg : instr.args) {
    for (const ValueId value : arg.values) visit(value);
  }
  for (const ValueId value : instr.inputs) visit(value);
  visit(instr.base);
}

/// The gradient waiting at flat node input `input` became `value` (undefined: it was consumed).
struct BufferEvent {
  uint32_t input;
  ValueId value;
};

/// Where capture began: at the start, or behind a boundary whose results were not those of an earlier capture.
enum class Stage : uint8_t { NodeStart, AfterTensorPre, AfterPre, AfterCall, AfterPost };

/// ATen instrs [first, last) between two boundaries.
struct Segment {
  uint32_t first = 0, last = 0;
  std::vector<ValueId> inputs;   // values made elsewhere that it reads
  std::vector<ValueId> outputs;  // values that it makes and others read
};

class HINDCAST_API Graph {
 public:
  std::vector<Value> values;
  std::vector<Instr> instrs;
  std::shared_ptr<SymbolTable> symbols = SymbolTable::make();

  std::vector<ValueId> tensor_inputs;   // one per collected tensor slot; undefined where nobody reads it
  std::vector<ValueId> resume_inputs;   // gradients given at the start, in the order of Resume
  std::vector<std::string> node_names;  // per collected call
  std::vector<BufferEvent> buffer_events;
  uint32_t first_call = 0;
  Stage stage = Stage::NodeStart;
  uint32_t id = 0;
  bool strict = false;  // Options::deterministic of the guard: reductions must keep ATen's order, no contraction

  std::vector<Segment> segments() const;

  /// Runs one segment op by op through ATen, below autograd: `inputs` and results in the order of Segment.
  /// Throws std::invalid_argument when the number of inputs is not that of the segment.
  std::vector<at::Tensor> run(const Segment& segment, std::vector<at::Tensor> inputs, const Bindings& bindings) const;
  /// The same for a graph of one segment, with the values its symbols had at capture.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) const;

  /// Runs every ATen instr with the symbols' values at capture; reads and adds to `values` (by ValueId). Instrs whose
  /// arguments are not there are left out.
  void replay(std::unordered_map<uint32_t, at::Tensor>& values) const;
  /// The same for these instrs, of this graph or like some of it, with other values of the symbols.
  static void replay(std::unordered_map<uint32_t, at::Tensor>& values, std::span<const Instr> instrs, const Env& env);

  /// Text in the words of PyTorch's compiled autograd log: dtype, symbolic shape, strides and device on every value, the
  /// autograd node and its NodeCall number above its instrs.
  std::string print() const;
  std::string dot() const;
  /// Writes an SVG through Graphviz' `dot` program. Throws std::runtime_error naming what is missing.
  void write_svg(const std::string& path) const;

  /// Throws InternalError if a value is used before it is made, made twice, or an instr is malformed.
  void verify() const;

  /// Bytes that it holds, symbols included; of constants that are tensors or lists only the reference.
  size_t footprint() const;
};

}  // namespace hindcast::capture

namespace hindcast {
using capture::Graph;
using capture::Segment;
}  // namespace hindcast
