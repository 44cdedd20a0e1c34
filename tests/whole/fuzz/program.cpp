#include "tests/whole/fuzz/program.h"

#include <algorithm>
#include <set>

#include "tests/whole/fuzz/ops.h"

namespace hindcast::tests::fuzz {

std::vector<int64_t> sizes_of(const Shape& shape, const Step& step) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : shape) sizes.push_back(dim.in(step));
  return sizes;
}

bool has_batch(const Shape& shape) {
  return std::any_of(shape.begin(), shape.end(), [](const Dim& dim) { return dim.batch; });
}

bool happens(When when, const Step& step) {
  switch (when) {
    case When::FirstStep:
      return step.number == 0;
    case When::OddSteps:
      return step.number % 2 == 1;
    case When::Always:
      break;
  }
  return true;
}

bool runs_anything(const Program& program) {
  const auto has_root = [](const Call& call) { return !call.roots.empty() && (call.kind == Call::Kind::Backward || !call.inputs.empty()); };
  return !program.steps.empty() && !program.calls.empty() && std::all_of(program.calls.begin(), program.calls.end(), has_root);
}

std::vector<int> values_with_grads(const Program& program) {
  std::set<int> values;
  for (const Leaf& leaf : program.leaves) {
    if (leaf.requires_grad) values.insert(leaf.value);
  }
  for (const Instr& instr : program.instrs) {
    if (op(instr.op).traits & kRetains) values.insert(instr.a);
  }
  for (const Call& call : program.calls) values.insert(call.inputs.begin(), call.inputs.end());
  return {values.begin(), values.end()};
}

}  // namespace hindcast::tests::fuzz
