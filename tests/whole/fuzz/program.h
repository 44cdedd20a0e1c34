#pragma once
// A fuzzed program as data: the generator creates it, the interpreter runs it, the shrinker reduces it and the printer prints it.
//
// Values are numbered. Leaves define one each, instructions any number; an instruction without results is a statement: it
// writes in place or registers a hook. Every step runs all instructions, then all calls.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/whole/fuzz/runtime.h"

namespace hindcast::tests::fuzz {

/// A size that may be a multiple of the step's batch.
struct Dim {
  int64_t factor = 1;
  bool batch = false;

  bool is_one() const { return factor == 1 && !batch; }
  int64_t in(const Step& step) const { return batch ? factor * step.batch : factor; }
  bool operator==(const Dim&) const = default;
};
using Shape = std::vector<Dim>;

std::vector<int64_t> sizes_of(const Shape& shape, const Step& step);
bool has_batch(const Shape& shape);

/// What is known of a value before anything runs.
struct Type {
  Shape shape;
  at::ScalarType dtype = at::kFloat;
  bool operator==(const Type&) const = default;
};

struct Leaf {
  int value = 0;
  Layout layout = Layout::Contiguous;
  bool requires_grad = true;
  bool lasting = true;   ///< made once, like a parameter; else in every step, like an input
  bool outside = false;  ///< of lasting ones: functions read it from outside; else it is an argument
};

enum class When { Always, FirstStep, OddSteps };
bool happens(When when, const Step& step);

/// One row of the table of operators with its operands filled in; ops.h says what the letters mean.
struct Instr {
  int op = 0;
  int a = -1, b = -1, c = -1;  ///< values, -1 for none
  int64_t i = 0, j = 0, k = 0;
  double scalar = 1;
  bool scalar_changes = false;  ///< multiplied by the step's
  Shape sizes;
  int first_result = 0;
  int results = 0;
  When when = When::Always;  ///< statements only
  int function = -1;         ///< neighbours with one number are the body of a function; -1: none

  bool defines(int value) const { return value >= first_result && value < first_result + results; }
  bool uses(int value) const { return a == value || b == value || c == value; }
};

struct Root {
  int value = 0;
  std::optional<Layout> gradient;  ///< none: LibTorch makes the 1 of a loss
};

/// One call into the engine.
struct Call {
  enum class Kind { Backward, Grad, SquaredGradients };
  Kind kind = Kind::Backward;
  std::vector<Root> roots;
  std::vector<int> inputs;  ///< empty for Backward: all leaves
  bool retain_graph = false;
  bool create_graph = false;
  bool allow_unused = true;
  When when = When::Always;
};

enum class ZeroGrads { Not, SetToNone, FillWithZeros };

/// How functions are compiled ahead of time.
struct FunctionSettings {
  bool min_cut = false;
  bool saves_little = false;  ///< min_cut with the smallest memory_budget
  bool fused = false;         ///< programs with groups, each run through ATen
  bool checked = false;       ///< the function runs beside each of its programs
  bool dynamic = true;
  bool rehearsed = false;  ///< each call comes twice, the first without gradients and on copies
  bool guarded = false;    ///< hindcast runs the backwards too
};

struct Program {
  uint64_t seed = 0;
  std::vector<Type> types;  ///< by value
  std::vector<Leaf> leaves;
  std::vector<Instr> instrs;
  std::vector<Call> calls;
  std::vector<Step> steps;
  ZeroGrads zero_grads = ZeroGrads::Not;
  bool descend = false;   ///< lasting leaves follow their gradients at the end of each step
  bool autocast = false;  ///< around the instructions

  FunctionSettings functions;

  // How hindcast runs it.
  bool verify = false;
  bool fused = false;  ///< plans with groups, each run through ATen
  bool visitor = false;
  bool dynamic = true;
};

/// A call has a root, a step runs. The shrinker's candidates need not.
bool runs_anything(const Program& program);

/// The values whose `.grad` is inspected after each call: leaves that require grad, values that retain theirs, inputs.
std::vector<int> values_with_grads(const Program& program);

}  // namespace hindcast::tests::fuzz
