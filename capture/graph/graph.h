#pragma once
// A program over tensors: SSA, without mutation of anything that is not its own.
//
//   values   inputs, and results of instrs
//   instrs   ATen calls; sums of gradients; events
//   symbols  sizes and scalars that may change from one run to the next, and the relations that must hold between them
//
// An *event* is what happens between the calls and is not the program's affair: of a backward, a hook, a node that is called as
// itself, an accumulation (capture/backward/backward_graph.h). The program knows when an event may happen, and what becomes of
// the values that the event reads. A *barrier* runs user code: what it returns may have other shapes and dtypes next time, or be
// undefined. The instrs between two barriers are a *segment*; a graph compiler gets the graph and returns one function a segment.

#include "capture/graph/users_op.h"
#include "capture/symbols/symbols.h"
#include "base/api.h"
#include "base/shared_list.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <functional>
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
  Op,        // an ATen call without effects
  Mutate,    // an in-place ATen call on a fresh copy of its target: functional seen from outside
  AddGrads,  // the engine's sum of two gradients that flow into one input; the first is written to where that is allowed
  Event,     // see above; number `event` of whoever knows what it is
};

/// When an event may happen, for who puts instrs in another order.
enum class EventOrder : uint8_t {
  Here,     // where it stands, among the instrs that touch its values
  Late,     // at any time before the next barrier: nobody can see when
  Leave,    // where it stands, and the rest of the program may be left to somebody else there: what it reads must exist
  Barrier,  // where it stands, and user code runs: no instr passes it
};

/// What becomes of the values that an event reads.
enum class EventUse : uint8_t {
  Wait,  // nothing: they are there in case the program is left to somebody else
  Keep,  // their memory may be kept, and written to later
  Show,  // user code sees them
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
  EventOrder order = EventOrder::Here;
  EventUse use = EventUse::Wait;
  uint32_t event = 0;
  uint32_t origin = 0;   // what it was recorded of, an index into Graph::origins
  uint32_t formula = 0;  // of a function's backward: instrs of one node of autograd have the same number; 0: of none
  std::optional<c10::OperatorHandle> op;
  std::vector<Arg> args;  // Op and Mutate: in schema order
  ValueIds inputs;        // the others: in order, may be undefined
  ValueIds outputs;
  std::vector<ViewStep> views;  // Mutate: from the copy to the written tensor
  ValueId base;                 // Mutate: the value that is copied
  uint32_t target_arg = 0;      // Mutate: which argument is written
  SeenOfAutograd seen;          // by the kernel, where that is the user's
};

/// An ATen call or a sum.
inline bool computes(const Instr& instr) { return instr.kind != InstrKind::Event; }
inline bool is_barrier(const Instr& instr) { return instr.kind == InstrKind::Event && instr.order == EventOrder::Barrier; }
/// An event that does nothing with what it reads.
inline bool waits(const Instr& instr) {
  return instr.kind == InstrKind::Event && instr.use == EventUse::Wait && instr.order != EventOrder::Barrier;
}
/// An event that may go on with the memory of what it reads.
inline bool keeps(const Instr& instr) { return instr.kind == InstrKind::Event && instr.use == EventUse::Keep && !instr.inputs.empty(); }

template <class Visit>
void for_each_use(const Instr& instr, Visit visit) {
  for (const Arg& arg : instr.args) {
    for (const ValueId value : arg.values) visit(value);
  }
  for (const ValueId value : instr.inputs) visit(value);
  visit(instr.base);
}

/// Instrs [first, last) between two barriers.
struct Segment {
  uint32_t first = 0, last = 0;
  std::vector<ValueId> inputs;   // values made elsewhere that it reads
  std::vector<ValueId> outputs;  // values that it makes and others read
};

/// A dimension of a result whose size depends on data. The instr that makes the value binds the symbol.
struct UnbackedSize {
  ValueId value;
  uint32_t dim = 0;
};

/// Names of values in texts, by value.
using ValueNames = std::shared_ptr<const std::vector<std::string>>;

class HINDCAST_API Graph {
 public:
  Graph() = default;
  /// Of the program alone: a backward's events have numbers and no meaning any more. copy() keeps them.
  Graph(const Graph&) = default;
  Graph& operator=(const Graph&) = default;
  virtual ~Graph() = default;

  base::SharedList<Value> values;  // copies of a graph share them, and the instrs
  base::SharedList<Instr> instrs;
  std::shared_ptr<SymbolTable> symbols = SymbolTable::make();
  std::vector<ValueId> inputs;         // in the order in which tensors are given; undefined where no instr reads one
  std::vector<ValueId> outputs;        // what the program returns; a backward's events give everything away
  std::vector<UnbackedSize> unbacked;  // in the order of the symbols; empty where all of these are given, as to a backward
  std::vector<std::string> origins;    // what instrs were recorded of, for texts: a backward's nodes
  ValueNames names;                    // null, or what somebody gave them; else texts name values by their ops
  uint32_t id = 0;
  bool strict = false;  // Options::deterministic of the guard: reductions must keep ATen's order, no contraction

  std::vector<Segment> segments() const;

  /// Runs one segment op by op through ATen, below autograd: `inputs` and results in the order of Segment.
  /// Throws std::invalid_argument when the number of inputs is not that of the segment.
  std::vector<at::Tensor> run(const Segment& segment, std::vector<at::Tensor> inputs, const Bindings& bindings) const;
  /// The same for a graph of one segment, with the values its symbols had at capture; of a program, from `inputs` to `outputs`, where the
  /// symbols have the values that the sizes of `given` say.
  std::vector<at::Tensor> run(std::vector<at::Tensor> given) const;

  /// Runs every ATen instr with the symbols' values at capture; reads and adds to `values` (by ValueId). Instrs whose
  /// arguments are not there are left out.
  void replay(std::unordered_map<uint32_t, at::Tensor>& values) const;
  /// The same for one instr, of this graph or like one of it, with other values of the symbols.
  static void replay(std::unordered_map<uint32_t, at::Tensor>& values, const Instr& instr, const Env& env);

  /// Computes `wanted` from `known` (by ValueId), by ATen's ops in the state of this thread: autograd, transforms of functions and dispatch
  /// modes see each. Instrs of the origin kWithoutGradients run without.
  void compute(std::span<const ValueId> wanted, std::unordered_map<uint32_t, at::Tensor>& known, const Bindings& bindings) const;
  /// The same where sizes are expressions of a trace at work, which then depends on the graph's relations. By number of the symbol.
  void compute(std::span<const ValueId> wanted, std::unordered_map<uint32_t, at::Tensor>& known, std::span<const c10::SymInt> sizes,
               std::span<const double> numbers) const;
  static constexpr const char* kWithoutGradients = "forward, without gradients";

  /// The tensor with these views taken of it, in the autograd state of this thread. Their arguments are no tensors but it.
  static at::Tensor view(at::Tensor of, const std::vector<ViewStep>& views, const Env& env);

  /// Text in the words of PyTorch's logs: dtype, symbolic shape, strides and device on every value; of a backward, the autograd
  /// node and its NodeCall number above its instrs.
  virtual std::string print() const;
  /// The same as a picture, for Graphviz.
  virtual std::string dot() const;
  /// What the text calls each value; empty for one that is not in the text.
  virtual std::vector<std::string> value_names() const;
  /// Writes an SVG through Graphviz' `dot` program. Throws std::runtime_error naming what is missing.
  void write_svg(const std::string& path) const;

  /// Throws InternalError if a value is used before it is made, made twice, or an instr is malformed.
  void verify() const;

  /// Bytes that it holds, symbols included; of constants that are tensors or lists only the reference. What it shares with `beside`, a
  /// graph that is kept too, is not counted.
  virtual size_t footprint(const Graph* beside = nullptr) const;

  /// What a run evaluates: arguments, and sizes of all values, which kernels walk.
  virtual std::vector<ExprId> expressions() const;

  /// A copy of its own class.
  virtual std::shared_ptr<Graph> copy() const;
  /// Whether a run binds unbacked symbols when this instr has run.
  bool binds_sizes(const Instr& instr) const;
  /// Values are read in place of others from now on: what names values, and is no instr, follows.
  virtual void redirect(const std::function<ValueId(ValueId)>& now);

 private:
  std::vector<at::Tensor> run_program(std::vector<at::Tensor> given) const;
};

}  // namespace hindcast::capture

namespace hindcast {
using capture::Graph;
using capture::Segment;
}  // namespace hindcast
