#include "capture/backward/backward_graph.h"

#include "base/format.h"
#include "capture/graph/print.h"
#include "hindcast/detail/footprint.h"

#include <algorithm>
#include <array>

namespace hindcast::capture {
namespace {

// Prints in the style of PyTorch's compiled autograd log.
class BackwardPrinter final : public Printer {
 public:
  explicit BackwardPrinter(const BackwardGraph& graph) : Printer(graph), backward_(graph) {}

 private:
  std::string head() const override {
    return base::format(
        "===== Compiled autograd graph =====\n"
        "class CompiledAutograd{}(torch.nn.Module):\n    def forward(self, inputs, sizes, scalars, hooks):\n",
        backward_.id);
  }

  std::vector<Input> inputs() const override {
    std::vector<Input> named;
    const auto add = [&](ValueId value, std::string name) {
      named.push_back({value, std::move(name), base::format("inputs[{}]", named.size())});
    };
    size_t tangents = 0, saved = 0;
    for (const ValueId value : backward_.resume_inputs()) add(value, base::format("tangents_{}", ++tangents));
    for (const ValueId value : backward_.tensor_inputs()) add(value, value.defined() ? base::format("saved_{}", ++saved) : "");
    return named;
  }

  std::string name_of(const Instr& instr) const override {
    switch (backward_.event_of(instr).kind) {
      case EventKind::Hook:
        return "call_hook";
      case EventKind::CallNode:
        return "call_node";
      case EventKind::Accumulate:
        return "accumulate_grad_";
      case EventKind::Capture:
        return "capture";
      case EventKind::NodeStart:
      case EventKind::Release:
        return "";
    }
    return "";
  }

  std::string text_of(const Instr& instr, const std::string& inputs) const override {
    static constexpr std::array kHookTypes = {"tensor_pre_hook", "pre_hook", "post_hook"};
    const Event& event = backward_.event_of(instr);
    switch (event.kind) {
      case EventKind::Hook:
        return base::format("call_hook(hooks[{}], {}, hook_type = '{}')", instr.origin, inputs,
                            kHookTypes[static_cast<size_t>(event.stage)]);
      case EventKind::CallNode:
        return base::format("call_node({}, {})", backward_.origins[instr.origin], inputs);
      case EventKind::Accumulate:
        return base::format("accumulate_grad_({})", inputs);
      case EventKind::Capture:  // listed among the results
      case EventKind::NodeStart:
      case EventKind::Release:
        return "";
    }
    return "";
  }

  // "aot0_" for the first program that was compiled ahead of time.
  std::string prefix_of(const Instr& instr) const override {
    const auto found = std::find(backward_.programs.begin(), backward_.programs.end(), instr.origin);
    return found == backward_.programs.end() ? "" : base::format("aot{}_", found - backward_.programs.begin());
  }
  std::string label_of_origin(uint32_t origin) const override {
    return base::format("{} (NodeCall {})", backward_.origins[origin], origin + 1);
  }
  std::string tail() const override { return "\n        _exec_final_callbacks_stub = exec_final_callbacks_stub()"; }

  std::vector<ValueId> results() const override {
    std::vector<ValueId> captured;
    for (const Instr& instr : backward_.instrs) {
      if (backward_.is(instr, EventKind::Capture)) captured.push_back(instr.inputs[0]);
    }
    return captured;
  }

  const BackwardGraph& backward_;
};

}  // namespace

std::string BackwardGraph::print() const { return BackwardPrinter(*this).text(); }
std::string BackwardGraph::dot() const { return BackwardPrinter(*this).dot(); }
std::vector<std::string> BackwardGraph::value_names() const { return BackwardPrinter(*this).names(); }

void BackwardGraph::mark_bailout_points() {
  const bool user_code_runs = first_call != 0 || stage != Stage::NodeStart ||
                              std::any_of(instrs.begin(), instrs.end(), [](const Instr& instr) { return is_barrier(instr); });
  if (!user_code_runs) return;
  bool first_node = true;
  for (size_t i = 0; i < instrs.size(); ++i) {
    const Instr& instr = instrs[i];
    if (is(instr, EventKind::NodeStart)) {
      if (first_node) instrs.edit(i).order = EventOrder::Leave;
      first_node = false;
    } else if (is_barrier(instr)) {
      // A hook checks its own node, whose formula may follow, and, like an opaque node, all nodes of the segment after it. After
      // post-accumulate hooks the first node checks the segment.
      first_node = is(instr, EventKind::Accumulate);
    }
  }
}

uint32_t BackwardGraph::end_of_recheck(uint32_t instr) const {
  const Instr& first = instrs[instr];
  uint32_t end = 0;
  if (is_barrier(first)) {
    if (is(first, EventKind::Accumulate)) return 0;
    end = first.origin + 1;
    ++instr;
  } else if (first.order != EventOrder::Leave) {
    return 0;
  }
  for (; instr < instrs.size() && !is_barrier(instrs[instr]); ++instr) {
    if (is(instrs[instr], EventKind::NodeStart)) end = std::max(end, instrs[instr].origin + 1);
  }
  return end;
}

void BackwardGraph::redirect(const std::function<ValueId(ValueId)>& now) {
  Graph::redirect(now);
  // Keeps the number of buffer events: events store how many of them precede them.
  for (BufferEvent& event : buffer_events) event.value = now(event.value);
}

std::vector<ExprId> BackwardGraph::expressions() const {
  std::vector<ExprId> needed = Graph::expressions();
  for (const Event& event : events) {
    for (const FactPattern& pattern : event.expected) {
      if (pattern.expr) needed.push_back(*pattern.expr);
    }
  }
  return needed;
}

size_t BackwardGraph::footprint(const Graph* beside) const {
  using base::footprint;
  size_t bytes = Graph::footprint(beside) + sizeof(*this) - sizeof(Graph) + footprint(events) + footprint(buffer_events);
  for (const Event& event : events) bytes += footprint(event.expected);
  return bytes;
}

}  // namespace hindcast::capture
