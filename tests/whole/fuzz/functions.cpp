#include "tests/whole/fuzz/functions.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "tests/whole/fuzz/function_runtime.h"
#include "tests/whole/fuzz/generate.h"
#include "tests/whole/fuzz/ops.h"
#include "tests/whole/fuzz/random.h"

namespace hindcast::tests::fuzz {
namespace {

bool is_hook(const Instr& instr) {
  const Rule rule = op(instr.op).rule;
  return rule == Rule::Hook || rule == Rule::LeafHook;
}

bool is_write(const Instr& instr) { return is_statement(op(instr.op).rule) && !is_hook(instr); }

bool says(const Instr& instr, std::string_view words) { return std::string_view(op(instr.op).text).find(words) != std::string_view::npos; }

std::set<int> operands_of(const Instr& instr) {
  std::set<int> values{instr.a, instr.b, instr.c};
  values.erase(-1);
  return values;
}

/// Whether anything other than the instructions first to last - 1 uses it.
bool is_used_outside(const Program& program, size_t first, size_t last, int value) {
  for (size_t index = 0; index < program.instrs.size(); ++index) {
    if ((index < first || index >= last) && program.instrs[index].uses(value)) return true;
  }
  return std::any_of(program.calls.begin(), program.calls.end(), [&](const Call& call) {
    return std::count(call.inputs.begin(), call.inputs.end(), value) > 0 ||
           std::any_of(call.roots.begin(), call.roots.end(), [&](const Root& root) { return root.value == value; });
  });
}

void note_step(FunctionPart& part, const Instr& instr) {
  part.number |= instr.when != When::Always || says(instr, "n %");
  part.batch |= has_batch(instr.sizes);
  part.scalar |= instr.scalar_changes;
  part.writes |= is_write(instr);
  part.shares |= (op(instr.op).traits & kView) != 0;
  part.draws |= says(instr, "rand") || says(instr, "bernoulli") || says(instr, "dropout");
}

void find_batch(const Program& program, FunctionPart& part) {
  for (size_t argument = 0; argument < part.arguments.size(); ++argument) {
    const Shape& shape = program.types[part.arguments[argument]].shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!shape[d].batch) continue;
      part.batch_argument = static_cast<int>(argument);
      part.batch_dim = static_cast<int64_t>(d), part.batch_factor = shape[d].factor;
      return;
    }
  }
}

FunctionPart part_of(const Program& program, size_t first, size_t last) {
  FunctionPart part;
  part.first = first, part.last = last;
  std::set<int> made, taken;
  for (size_t index = first; index < last; ++index) {
    const Instr& instr = program.instrs[index];
    note_step(part, instr);
    for (const int value : operands_of(instr)) {
      if (!made.contains(value)) taken.insert(value);
    }
    for (int r = 0; r < instr.results; ++r) made.insert(instr.first_result + r);
  }
  for (const int value : taken) {
    const auto leaf = std::find_if(program.leaves.begin(), program.leaves.end(), [&](const Leaf& each) { return each.value == value; });
    (leaf != program.leaves.end() && leaf->outside && leaf->lasting ? part.outside : part.arguments).push_back(value);
  }
  for (const int value : made) {
    if (is_used_outside(program, first, last, value)) part.results.push_back(value);
  }
  find_batch(program, part);
  return part;
}

/// By value: the value whose memory it may share.
std::vector<int> owners_of(const Program& program) {
  std::vector<int> owners(program.types.size());
  for (size_t value = 0; value < owners.size(); ++value) owners[value] = static_cast<int>(value);
  for (const Instr& instr : program.instrs) {
    if ((op(instr.op).traits & kView) == 0) continue;
    for (int r = 0; r < instr.results; ++r) owners[instr.first_result + r] = owners[instr.a];
  }
  return owners;
}

class Hidden {
 public:
  explicit Hidden(const Program& program)
      : owners_(owners_of(program)), same_(program.types.size()), made_(program.types.size()), read_(program.types.size()) {
    std::iota(same_.begin(), same_.end(), 0);
    for (const Instr& instr : program.instrs) {
      if (is_write(instr)) written_anywhere_.insert(owners_[instr.a]);
    }
    for (const FunctionPart& part : functions_of(program)) {
      for (size_t index = part.first; index < part.last; ++index) {
        const Instr& instr = program.instrs[index];
        if (is_write(instr)) written_.insert(owners_[instr.a]);
        for (int r = 0; r < instr.results; ++r) made_[instr.first_result + r] = true;
        if (may_return_its_operand(instr)) {
          same_[instr.first_result] = same_[instr.a];
          continue;
        }
        for (const int value : operands_of(instr)) read_[same_[value]] = read_[same_[value]] || (made_[value] && !is_hook(instr));
      }
    }
  }

  bool gradient(int value) const { return read_[same_[value]] || written_.contains(owners_[value]); }
  /// LibTorch loses a retained gradient, with an internal assertion, if one of several results is written to.
  bool breaks_retained(int value) const { return made_[value] && written_anywhere_.contains(owners_[value]); }
  bool node(int value) const { return made_[value] || gradient(value); }

 private:
  static bool may_return_its_operand(const Instr& instr) {
    return says(instr, "a.conj()") || says(instr, "a.to(") || says(instr, "at::real(");
  }

  std::vector<int> owners_;
  std::vector<int> same_;          // by value: the first that may be the very same tensor
  std::vector<bool> made_, read_;  // inside of a function; read: by the function that made it
  std::set<int> written_, written_anywhere_;
};

}  // namespace

std::vector<FunctionPart> functions_of(const Program& program) {
  std::vector<FunctionPart> parts;
  for (size_t first = 0, last = 0; first < program.instrs.size(); first = last) {
    const int function = program.instrs[first].function;
    for (last = first + 1; last < program.instrs.size() && program.instrs[last].function == function;) ++last;
    if (function >= 0) parts.push_back(part_of(program, first, last));
  }
  return parts;
}

Step step_inside(const FunctionPart& part, const Step& step) {
  Step inside;
  if (part.number) inside.number = kind_of_step(step);
  if (part.batch && part.batch_argument < 0) inside.batch = step.batch;
  if (part.scalar) inside.scalar = step.scalar;
  return inside;
}

void drop_what_functions_hide(Program& program) {
  if (std::none_of(program.instrs.begin(), program.instrs.end(), [](const Instr& instr) { return instr.function >= 0; })) return;
  const Hidden hidden(program);
  // Where gradients of some inputs are asked for, values keep others on the way to a function than on the way to those.
  const bool asks = std::any_of(program.calls.begin(), program.calls.end(), [](const Call& call) { return !call.inputs.empty(); });
  // A hook that a function registers there leaves no trace.
  const auto is_outside = [&](int value) {
    return std::any_of(program.leaves.begin(), program.leaves.end(), [&](const Leaf& leaf) { return leaf.outside && leaf.value == value; });
  };
  const auto is_made_elsewhere = [all = program.instrs](const Instr& hook) {
    return std::any_of(all.begin(), all.end(), [&](const Instr& each) { return each.defines(hook.a) && each.function != hook.function; });
  };
  std::erase_if(program.instrs, [&](const Instr& instr) {
    if (!is_hook(instr)) return false;
    if (says(instr, "_node(") && hidden.node(instr.a)) return true;
    if (instr.function >= 0) return is_outside(instr.a) || (hidden.gradient(instr.a) && is_made_elsewhere(instr));
    const bool retains = (op(instr.op).traits & kRetains) != 0;
    return hidden.gradient(instr.a) || (retains && (asks || hidden.breaks_retained(instr.a)));
  });
  for (Call& call : program.calls) {
    // A non-leaf input retains its gradient, for later calls too.
    const bool is_one_of_many = program.calls.size() > 1;
    std::erase_if(call.inputs, [&](int value) { return is_one_of_many ? hidden.node(value) : hidden.gradient(value); });
    if (call.inputs.empty()) call.kind = Call::Kind::Backward;
  }
}

// ---- generating

namespace {

class Functions {
 public:
  explicit Functions(uint64_t seed) : program_(generate(seed)), random_(seed ^ 0xF00DF00D) {}

  Program run() {
    choose_settings();
    choose_steps();
    choose_instrs();
    const auto count = static_cast<int64_t>(program_.instrs.size());
    if (random_.percent(30) && count >= 4) {
      choose_part(0, 0, count / 2);
      choose_part(1, count / 2, static_cast<int64_t>(program_.instrs.size()));
    } else {
      choose_part(0, 0, count);
    }
    drop_what_functions_hide(program_);
    return std::move(program_);
  }

 private:
  void choose_settings() {
    FunctionSettings& settings = program_.functions;
    settings.min_cut = random_.percent(50);
    settings.saves_little = random_.percent(20);
    settings.fused = random_.percent(30);
    settings.checked = random_.percent(20);
    settings.dynamic = random_.percent(90);
    settings.rehearsed = random_.percent(15);
    settings.guarded = random_.percent(60);
    for (Leaf& leaf : program_.leaves) leaf.outside = leaf.lasting && random_.percent(30);
    for (Call& call : program_.calls) {
      if (call.kind == Call::Kind::SquaredGradients && random_.percent(60)) call.kind = Call::Kind::Grad;
      if (call.create_graph) call.create_graph = random_.percent(50);
    }
  }

  // A size is traced twice and confirmed once before a program serves others.
  void choose_steps() {
    const std::vector<std::vector<int64_t>> patterns = {{0, 0, 0, 0},       {0, 0, 1, 1, 0, 1}, {0, 0, 2, 2, 4, 3, 1},
                                                        {0, 1, 2, 3, 1, 0}, {1, 0, 1, 0, 2, 1}, {3, 5, 8, 6, 4, 7}};
    const std::vector<int64_t>& pattern = random_.pick(patterns);
    const int64_t first = random_.between(1, 3);
    const bool scalars_change = random_.percent(25);
    program_.steps.clear();
    for (size_t number = 0; number < pattern.size(); ++number) {
      program_.steps.push_back({static_cast<int>(number), first + pattern[number], scalars_change && number % 2 == 1 ? 0.75 : 1.0});
    }
    if (scalars_change) return;
    for (Instr& instr : program_.instrs) instr.scalar_changes = false;
  }

  // Random numbers in some programs, and fewer instructions that depend on the step.
  void choose_instrs() {
    const bool draws = random_.percent(30);
    for (Instr& instr : program_.instrs) {
      if (instr.when != When::Always && is_write(instr) && random_.percent(60)) instr.when = When::Always;
      if (!draws || program_.types[instr.a].dtype == at::kComplexFloat || !random_.percent(60)) continue;
      const std::string_view text = op(instr.op).text;
      if (text == "a * s" || text == "a.neg()") instr.op = find_op("a * at::rand_like(a)");
      if (text == "a + s" || text == "a.clone()") instr.op = find_op("a * at::empty_like(a).bernoulli_(0.5)");
      if (text == "a.mul_(s)" || text == "a.add_(s)" || text == "a.fill_(s)") instr.op = find_op("a.mul_(at::rand_like(a))");
    }
  }

  /// Instructions of a stretch between these two.
  void choose_part(int function, int64_t begin, int64_t end) {
    if (end <= begin) return;
    const bool traced = random_.percent(92);
    const int64_t length = std::max(random_.between(1, end - begin), random_.between(1, end - begin));
    int64_t first = begin + random_.below(end - begin - length + 1), last = first + length;
    const auto is_eager = [](const Instr& instr) { return says(instr, "Opaque") || says(instr, "a.index({a.detach()"); };
    for (int64_t index = first; traced && index < last; ++index) {
      if (!is_eager(program_.instrs[static_cast<size_t>(index)])) continue;
      if (index - first >= last - index - 1) {
        last = index;
      } else {
        first = index + 1;
      }
    }
    const auto stretch_begin = program_.instrs.begin() + first, stretch_end = program_.instrs.begin() + last;
    auto part_end = stretch_end;
    if (traced) part_end = std::stable_partition(stretch_begin, stretch_end, [](const Instr& instr) { return !is_hook(instr); });
    std::for_each(stretch_begin, part_end, [&](Instr& instr) { instr.function = function; });
  }

  Program program_;
  Random random_;
};

}  // namespace

Program generate_with_functions(uint64_t seed) { return Functions(seed).run(); }

}  // namespace hindcast::tests::fuzz
