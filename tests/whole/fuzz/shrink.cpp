#include "tests/whole/fuzz/shrink.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tests/whole/fuzz/functions.h"
#include "tests/whole/fuzz/ops.h"

namespace hindcast::tests::fuzz {
namespace {

template <class T>
void erase_at(std::vector<T>& list, size_t index) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
}

/// Removes everything that needs a missing value.
void drop_what_lost_its_operands(Program& program) {
  std::set<int> defined{-1};
  for (const Leaf& leaf : program.leaves) defined.insert(leaf.value);
  std::vector<Instr> instrs;
  for (const Instr& instr : program.instrs) {
    if (!defined.contains(instr.a) || !defined.contains(instr.b) || !defined.contains(instr.c)) continue;
    for (int r = 0; r < instr.results; ++r) defined.insert(instr.first_result + r);
    instrs.push_back(instr);
  }
  program.instrs = std::move(instrs);
  for (Call& call : program.calls) {
    std::erase_if(call.roots, [&](const Root& root) { return !defined.contains(root.value); });
    const bool asked = !call.inputs.empty();
    std::erase_if(call.inputs, [&](int value) { return !defined.contains(value); });
    if (asked && call.inputs.empty()) call.roots.clear();  // no inputs would mean all of them
  }
  std::erase_if(program.calls, [](const Call& call) { return call.roots.empty(); });
}

void replace_value(Program& program, int value, int by) {
  const auto replace = [=](int& used) {
    if (used == value) used = by;
  };
  for (Instr& instr : program.instrs) replace(instr.a), replace(instr.b), replace(instr.c);
  for (Call& call : program.calls) {
    for (Root& root : call.roots) replace(root.value);
    for (int& input : call.inputs) replace(input);
  }
}

class Shrinker {
 public:
  Shrinker(Program program, const Fails& fails, int attempts) : best_(std::move(program)), fails_(fails), attempts_(attempts) {}

  Program run() {
    for (progress_ = true; progress_ && attempts_ > 0;) {
      progress_ = false;
      drop_steps();
      drop_calls();
      drop_instrs();
      take_operands_for_results();
      move_roots_up();
      simplify_calls();
      drop_leaves();
      make_functions_smaller();
      simplify_settings();
    }
    return best_;
  }

 private:
  /// Keeps the candidate if it still fails. `change` works on a copy.
  template <class Change>
  bool attempt(Change&& change) {
    if (attempts_ <= 0) return false;
    Program candidate = best_;
    change(candidate);
    drop_what_functions_hide(candidate);
    drop_what_lost_its_operands(candidate);
    if (!runs_anything(candidate)) return false;
    --attempts_;
    if (!fails_(candidate)) return false;
    best_ = std::move(candidate);
    progress_ = true;
    return true;
  }

  /// From the end: fewer instructions depend on later ones.
  template <class List>
  void drop_each(List Program::*list) {
    for (size_t index = (best_.*list).size(); index-- > 0;) {
      if (index < (best_.*list).size()) attempt([&](Program& p) { erase_at(p.*list, index); });
    }
  }

  void drop_steps() { drop_each(&Program::steps); }
  void drop_calls() { drop_each(&Program::calls); }
  void drop_instrs() { drop_each(&Program::instrs); }
  void drop_leaves() {
    for (size_t index = best_.leaves.size(); index-- > 0;) {
      if (index >= best_.leaves.size()) continue;
      if (attempt([&](Program& p) { erase_at(p.leaves, index); })) continue;
      if (best_.leaves[index].layout != Layout::Contiguous) attempt([&](Program& p) { p.leaves[index].layout = Layout::Contiguous; });
      if (best_.leaves[index].requires_grad) attempt([&](Program& p) { p.leaves[index].requires_grad = false; });
    }
  }

  void take_operands_for_results() {
    for (size_t index = best_.instrs.size(); index-- > 0;) {
      if (index >= best_.instrs.size()) continue;
      const Instr instr = best_.instrs[index];
      for (const int operand : {instr.a, instr.b}) {
        if (operand < 0 || instr.results != 1 || best_.types[operand] != best_.types[instr.first_result]) continue;
        const bool taken = attempt([&](Program& p) {
          erase_at(p.instrs, index);
          replace_value(p, instr.first_result, operand);
        });
        if (taken) break;
      }
    }
  }

  /// Makes a root's operand the root: everything after it is removed.
  void move_roots_up() {
    for (size_t call = 0; call < best_.calls.size(); ++call) {
      for (size_t root = 0; call < best_.calls.size() && root < best_.calls[call].roots.size(); ++root) {
        const auto raise = [&] {
          const int value = best_.calls[call].roots[root].value;
          for (const Instr& instr : best_.instrs) {
            if (!instr.defines(value)) continue;
            for (const int operand : {instr.a, instr.b}) {
              if (operand >= 0 && attempt([&](Program& p) { p.calls[call].roots[root] = {operand, Layout::Contiguous}; })) return true;
            }
            return false;
          }
          return false;
        };
        while (raise()) continue;
      }
    }
  }

  void simplify_calls() {
    for (size_t index = 0; index < best_.calls.size(); ++index) {
      for (size_t root = best_.calls[index].roots.size(); root-- > 0;) {
        if (best_.calls[index].roots.size() > 1) attempt([&](Program& p) { erase_at(p.calls[index].roots, root); });
      }
      for (size_t input = best_.calls[index].inputs.size(); input-- > 0;)
        attempt([&](Program& p) { erase_at(p.calls[index].inputs, input); });
      for (Root& root : best_.calls[index].roots) {
        const size_t at = static_cast<size_t>(&root - best_.calls[index].roots.data());
        if (!root.gradient || root.gradient == Layout::Contiguous) continue;
        if (attempt([&](Program& p) { p.calls[index].roots[at].gradient = Layout::Contiguous; })) break;  // `root` is gone
      }
      simplify(best_.calls[index].kind != Call::Kind::Backward, [&](Program& p) { p.calls[index].kind = Call::Kind::Backward; });
      simplify(best_.calls[index].retain_graph, [&](Program& p) { p.calls[index].retain_graph = false; });
      simplify(best_.calls[index].create_graph, [&](Program& p) { p.calls[index].create_graph = false; });
      simplify(best_.calls[index].when != When::Always, [&](Program& p) { p.calls[index].when = When::Always; });
    }
  }

  /// Removes the first and the last instruction of each function from it; the rest stays one piece.
  void make_functions_smaller() {
    for (size_t part = functions_of(best_).size(); part-- > 0;) {
      const auto found = functions_of(best_);
      if (part >= found.size()) continue;
      const auto take_out = [](size_t first, size_t last) {
        return [=](Program& p) {
          for (size_t index = first; index < last; ++index) p.instrs[index].function = -1;
        };
      };
      const size_t first = found[part].first, last = found[part].last;
      if (attempt(take_out(first, last)) || attempt(take_out(first, first + 1))) continue;
      attempt(take_out(last - 1, last));
    }
    for (size_t leaf = 0; leaf < best_.leaves.size(); ++leaf) {
      simplify(best_.leaves[leaf].outside, [&](Program& p) { p.leaves[leaf].outside = false; });
    }
    for (const auto member : {&FunctionSettings::min_cut, &FunctionSettings::saves_little, &FunctionSettings::fused,
                              &FunctionSettings::checked, &FunctionSettings::rehearsed, &FunctionSettings::guarded}) {
      simplify(best_.functions.*member, [&](Program& p) { p.functions.*member = false; });
    }
    simplify(!best_.functions.dynamic, [](Program& p) { p.functions.dynamic = true; });
  }

  void simplify_settings() {
    simplify(best_.verify, [](Program& p) { p.verify = false; });
    simplify(best_.fused, [](Program& p) { p.fused = false; });
    simplify(best_.visitor, [](Program& p) { p.visitor = false; });
    simplify(!best_.dynamic, [](Program& p) { p.dynamic = true; });
    simplify(best_.autocast, [](Program& p) { p.autocast = false; });
    simplify(best_.descend, [](Program& p) { p.descend = false; });
    simplify(best_.zero_grads != ZeroGrads::Not, [](Program& p) { p.zero_grads = ZeroGrads::Not; });
    const auto changes = [&](auto member) {
      return std::any_of(best_.steps.begin(), best_.steps.end(), [&](const Step& step) { return step.*member != best_.steps[0].*member; });
    };
    simplify(changes(&Step::batch), [](Program& p) {
      for (Step& step : p.steps) step.batch = p.steps[0].batch;
    });
    simplify(changes(&Step::scalar), [](Program& p) {
      for (Step& step : p.steps) step.scalar = p.steps[0].scalar;
    });
    for (size_t index = 0; index < best_.instrs.size(); ++index) {
      simplify(best_.instrs[index].when != When::Always, [&](Program& p) { p.instrs[index].when = When::Always; });
    }
  }

  template <class Change>
  void simplify(bool possible, Change&& change) {
    if (possible) attempt(std::forward<Change>(change));
  }

  Program best_;
  const Fails& fails_;
  int attempts_;
  bool progress_ = true;
};

}  // namespace

Program shrink(Program program, const Fails& fails, int attempts) { return Shrinker(std::move(program), fails, attempts).run(); }

}  // namespace hindcast::tests::fuzz
