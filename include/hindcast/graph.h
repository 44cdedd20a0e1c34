#pragma once
// A captured program: an SSA graph over tensors that mutates only its own values.
//
//   values   inputs, and results of instrs
//   instrs   ATen calls; sums of gradients; events
//   symbols  sizes and scalars that may change from one run to the next, and the relations that must hold between them
//
// An *event* happens between the calls and is not part of the computation: in a backward, a hook, an opaque node, an accumulation
// (capture/backward/backward_graph.h). The graph knows when an event may happen, and what happens to the values that the event reads. A
// *barrier* is an event that runs user code: its results may have other shapes and dtypes next time, or be undefined. The instrs between
// two barriers are a *segment*; a graph compiler gets the graph and returns one function per segment.

#include <hindcast/api.h>
#include <hindcast/detail/shared_list.h>
#include <hindcast/symbols.h>

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

/// Most instrs have one or two, which are stored inline.
using ValueIds = c10::SmallVector<ValueId, 2>;

/// A tensor of the graph as seen at capture. Sizes are exact symbolic expressions; strides are those at capture.
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
  AddGrads,  // the engine's sum of two gradients that flow into one input; written to the first in place where that is allowed
  Event,     // see above; the meaning of number `event` is known to the graph's creator
};

/// When an event may happen, for passes that reorder instrs.
enum class EventOrder : uint8_t {
  Here,     // in its place, among the instrs that touch its values
  Late,     // at any time before the next barrier: nothing observes when
  Leave,    // in its place, where another executor may take over the rest of the program: what it reads must exist
  Barrier,  // in its place, and user code runs: no instr may move across it
};

/// What happens to the values that an event reads.
enum class EventUse : uint8_t {
  Wait,  // nothing: they exist in case another executor takes over the program
  Keep,  // their memory may be kept, and written to later
  Show,  // user code sees them
};

/// The autograd state that an operator from outside LibTorch saw at capture (capture/graph/users_op.h).
struct SeenOfAutograd {
  bool is_noted = false;       // false: an operator of LibTorch or hindcast
  bool grad_mode = false;      // of the thread
  uint64_t requires_grad = 0;  // one bit per tensor among the arguments, lists flattened

  bool operator==(const SeenOfAutograd&) const = default;
};

/// One argument of an ATen call.
struct Arg {
  enum class Kind : uint8_t { Constant, Value, ValueList, OptionalValueList, Int, IntList, Float };
  Kind kind = Kind::Constant;
  c10::IValue constant;
  ValueIds values;                    // Value: one
  c10::SmallVector<ExprId, 2> exprs;  // Int, Float: one
};

/// A view taken of a value before a write: the op and its arguments; argument `self_arg` is the viewed tensor.
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
  uint32_t origin = 0;   // what it was captured from, an index into Graph::origins
  uint32_t formula = 0;  // in a function's backward: instrs of one autograd node have the same number; 0: of no node
  std::optional<c10::OperatorHandle> op;
  std::vector<Arg> args;  // Op and Mutate: in schema order
  ValueIds inputs;        // other kinds: in order, may be undefined
  ValueIds outputs;
  std::vector<ViewStep> views;  // Mutate: from the copy to the written tensor
  ValueId base;                 // Mutate: the value that is copied
  uint32_t target_arg = 0;      // Mutate: which argument is written
  SeenOfAutograd seen;          // set if the kernel is the user's
};

/// An ATen call or a sum.
inline bool computes(const Instr& instr) { return instr.kind != InstrKind::Event; }
inline bool is_barrier(const Instr& instr) { return instr.kind == InstrKind::Event && instr.order == EventOrder::Barrier; }
/// An event that does nothing with what it reads.
inline bool waits(const Instr& instr) {
  return instr.kind == InstrKind::Event && instr.use == EventUse::Wait && instr.order != EventOrder::Barrier;
}
/// An event that may keep using the memory of what it reads.
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
  std::vector<ValueId> inputs;   // values that it reads and others make
  std::vector<ValueId> outputs;  // values that it makes and others read
};

/// A dimension of a result whose size depends on data. The instr that makes the value binds the symbol.
struct UnbackedSize {
  ValueId value;
  uint32_t dim = 0;
};

/// Names of values in printed graphs, by value.
using ValueNames = std::shared_ptr<const std::vector<std::string>>;

class HINDCAST_API Graph {
 public:
  Graph() = default;
  /// Copies the program alone: a backward's events keep their numbers but lose their meaning. copy() keeps it.
  Graph(const Graph&) = default;
  Graph& operator=(const Graph&) = default;
  virtual ~Graph() = default;

  base::SharedList<Value> values;  // copies of a graph share values and instrs
  base::SharedList<Instr> instrs;
  std::shared_ptr<SymbolTable> symbols = SymbolTable::make();
  std::vector<ValueId> inputs;         // in the order in which tensors are passed; undefined where no instr reads one
  std::vector<ValueId> outputs;        // what the program returns; a backward returns its results through events
  std::vector<UnbackedSize> unbacked;  // in the order of the symbols; empty if all sizes are given, as in a backward
  std::vector<std::string> origins;    // what instrs were captured from, for printed graphs: a backward's nodes
  ValueNames names;                    // nullptr, or the names given by the caller; otherwise texts name values after their ops
  uint32_t id = 0;
  bool bitwise = false;  // Options::deterministic of the guard: reductions must keep ATen's order, no contraction

  std::vector<Segment> segments() const;

  /// Runs one segment op by op through ATen, below autograd: `inputs` and results in the order of Segment. Throws std::invalid_argument if
  /// the number of inputs is not that of the segment.
  std::vector<at::Tensor> run(const Segment& segment, std::vector<at::Tensor> inputs, const Bindings& bindings) const;
  /// The same for a graph of one segment, with the values its symbols had at capture; for a program, from `inputs` to `outputs`, with the
  /// symbols' values taken from the sizes of `given`.
  std::vector<at::Tensor> run(std::vector<at::Tensor> given) const;

  /// Runs every ATen instr with the symbols' values at capture; reads and adds to `values` (by ValueId). Instrs whose arguments are missing
  /// are skipped.
  void replay(std::unordered_map<uint32_t, at::Tensor>& values) const;
  /// The same for one instr, of this graph or equal to one of it, with other values of the symbols.
  static void replay(std::unordered_map<uint32_t, at::Tensor>& values, const Instr& instr, const Env& env);

  /// Computes `wanted` from `known` (by ValueId), through ATen's ops in this thread's state: autograd, function transforms and dispatch
  /// modes see each op. Instrs of the origin kWithoutGradients run without gradients.
  void compute(std::span<const ValueId> wanted, std::unordered_map<uint32_t, at::Tensor>& known, const Bindings& bindings) const;
  /// The same where sizes are expressions of a running trace, which then depends on the graph's relations. Both spans are indexed by symbol
  /// number.
  void compute(std::span<const ValueId> wanted, std::unordered_map<uint32_t, at::Tensor>& known, std::span<const c10::SymInt> sizes,
               std::span<const double> numbers) const;
  static constexpr const char* kWithoutGradients = "forward, without gradients";

  /// Applies `views` to the tensor, in this thread's autograd state. Their arguments contain no other tensor.
  static at::Tensor view(at::Tensor of, const std::vector<ViewStep>& views, const Env& env);

  /// Text in the style of PyTorch's logs: dtype, symbolic shape, strides and device on every value; in a backward, the autograd node and
  /// its NodeCall number above its instrs.
  virtual std::string print() const;
  /// The same as a Graphviz graph.
  virtual std::string dot() const;
  /// The name of each value in the text; empty for one that is not in the text.
  virtual std::vector<std::string> value_names() const;
  /// Writes an SVG through Graphviz' `dot` program. Throws std::runtime_error naming what is missing.
  void write_svg(const std::string& path) const;

  /// Throws InternalError if a value is used before it is made, made twice, or an instr is malformed.
  void verify() const;

  /// Bytes held, symbols included; of constants that are tensors or lists only the reference counts. Memory shared with `beside`, a graph
  /// that is kept too, is not counted.
  virtual size_t footprint(const Graph* beside = nullptr) const;

  /// Expressions that a run evaluates: arguments, and the sizes of all values, over which kernels iterate.
  virtual std::vector<ExprId> expressions() const;

  /// A copy of the same dynamic class.
  virtual std::shared_ptr<Graph> copy() const;
  /// Whether a run binds unbacked symbols when this instr has run.
  bool binds_sizes(const Instr& instr) const;
  /// Values were replaced by `now(value)`: updates everything that refers to values, except instrs.
  virtual void redirect(const std::function<ValueId(ValueId)>& now);

 private:
  std::vector<at::Tensor> run_program(std::vector<at::Tensor> given) const;
};

}  // namespace hindcast::capture

namespace hindcast {
using capture::Graph;
using capture::Segment;
}  // namespace hindcast
