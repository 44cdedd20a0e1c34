// The replay runs twice: first to find which values are not finite, with no more values alive than in a backward; then up to the op that is
// to be shown.

#include "engine/diagnosis/nan_origin.h"

#include "base/format.h"
#include "engine/diagnosis/find_origin.h"
#include "engine/diagnosis/non_finite.h"

#include <algorithm>
#include <sstream>

namespace hindcast::engine {
namespace {

using base::format;
using capture::Arg;
using capture::BackwardGraph;
using capture::EventKind;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

std::string place(const capture::Collected& collected, uint32_t call) {
  return format("{} (NodeCall {})", collected.calls[call].node->name(), call + 1);
}

std::string what(const BackwardGraph& graph, const Instr& instr) {
  if (instr.kind == InstrKind::AddGrads) return "the sum of two gradients behind";
  if (instr.kind != InstrKind::Event) {
    const auto& name = instr.op->operator_name();
    return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  }
  const capture::Event& event = graph.event_of(instr);
  switch (event.kind) {
    case EventKind::Hook:
      return event.stage == capture::HookStage::TensorPre ? "a tensor hook at"
             : event.stage == capture::HookStage::Pre     ? "a pre-hook of"
                                                          : "a post-hook of";
    case EventKind::CallNode:
      return "the call of";
    case EventKind::Accumulate:
      return "the accumulation at";
    default:
      return "a result at";
  }
}

/// "aten::exp of ExpBackward0 (NodeCall 2)", "a tensor hook at MulBackward0 (NodeCall 3)".
std::string name_of(const BackwardGraph& graph, const Instr& instr, const capture::Collected& collected) {
  const bool is_op = instr.kind == InstrKind::Op || instr.kind == InstrKind::Mutate;
  return what(graph, instr) + (is_op ? " of " : " ") + place(collected, instr.origin);
}

/// The value's name in Graph::print().
std::string name_of(const BackwardGraph& graph, ValueId value) {
  const auto starts = graph.resume_inputs();
  for (size_t i = 0; i < starts.size(); ++i) {
    if (starts[i] == value) return format("tangents_{}", i + 1);
  }
  size_t saved = 0;
  for (const ValueId input : graph.tensor_inputs()) {
    saved += input.defined();
    if (input == value) return format("saved_{}", saved);
  }
  return "a gradient";
}

std::string describe(const at::IValue& constant) {
  if (constant.isTensor()) return describe_values(constant.toTensor());
  std::ostringstream out;
  out << constant;
  return out.str();
}

class Lines {
 public:
  explicit Lines(const Values& values) : values_(values) {}
  explicit Lines(Values&&) = delete;  // holds a reference

  void value(const std::string& name, ValueId id) {
    if (const auto found = values_.find(id.index); id.defined() && found != values_.end()) line(name, describe_values(found->second));
  }
  void line(const std::string& name, const std::string& text) {
    constexpr int kMost = 24;
    if (++count_ < kMost) text_ += format("\n  {}: {}", name, text);
    if (count_ == kMost) text_ += "\n  ...";
  }
  std::string take() && { return std::move(text_); }

 private:
  const Values& values_;
  std::string text_;
  int count_ = 0;
};

std::string describe_call(const Instr& instr, const Values& values, const capture::Env& env) {
  Lines lines(values);
  if (instr.kind == InstrKind::Op || instr.kind == InstrKind::Mutate) {
    for (uint32_t a = 0; a < instr.args.size(); ++a) {
      const Arg& arg = instr.args[a];
      const std::string& name = instr.op->schema().arguments()[a].name();
      if (instr.kind == InstrKind::Mutate && a == instr.target_arg) {
        lines.value(name + ", before it is written to", instr.base);
      } else if (arg.kind == Arg::Kind::Constant) {
        if (!arg.constant.isNone() && !(arg.constant.isTensor() && !arg.constant.toTensor().defined()))
          lines.line(name, describe(arg.constant));
      } else if (arg.kind == Arg::Kind::Int) {
        lines.line(name, std::to_string(env.integer(arg.exprs[0])));
      } else if (arg.kind == Arg::Kind::Float) {
        lines.line(name, format("{}", env.real(arg.exprs[0])));
      } else if (arg.kind == Arg::Kind::IntList) {
        std::vector<int64_t> numbers;
        for (const capture::ExprId expr : arg.exprs) numbers.push_back(env.integer(expr));
        lines.line(name, format("{}", numbers));
      } else {
        for (size_t i = 0; i < arg.values.size(); ++i)
          lines.value(arg.values.size() == 1 ? name : format("{}[{}]", name, i), arg.values[i]);
      }
    }
  }
  for (size_t i = 0; i < instr.inputs.size(); ++i) lines.value(format("gradient {}", i), instr.inputs[i]);
  for (size_t i = 0; i < instr.outputs.size(); ++i)
    lines.value(instr.outputs.size() == 1 ? "result" : format("result {}", i), instr.outputs[i]);
  return std::move(lines).take();
}

std::string first_words(const Leg& leg, const Origin& origin, const capture::Collected& collected) {
  if (origin.instr == kNoInstr && !origin.given.defined()) return "the gradient at the root was not finite already";
  const std::string reader =
      origin.instr == kNoInstr ? std::string() : ", read by " + name_of(*leg.graph, leg.graph->instrs[origin.instr], collected);
  if (!origin.given.defined())
    return format("they begin in {}, which was given finite values", name_of(*leg.graph, leg.graph->instrs[origin.instr], collected));
  const std::string name = name_of(*leg.graph, origin.given);
  const auto starts = leg.graph->resume_inputs();
  if (std::find(starts.begin(), starts.end(), origin.given) != starts.end())
    return format("the gradient at the root was not finite already: {}{}", name, reader);
  return format("a value that the forward saved was not finite already: {}{}", name, reader);
}

std::string describe(const Leg& leg, const Origin& origin, const capture::Collected& collected) {
  std::string text = first_words(leg, origin, collected);
  if (!leg.graph) return text;
  if (leg.env) text += format(" (graph {})", leg.graph->id);
  if (origin.instr == kNoInstr) {
    const Values given = given_to(leg);
    Lines lines(given);
    lines.value("it is", origin.given);
    return text + std::move(lines).take();
  }
  const capture::Env env = env_of(leg);
  replay(leg, [&](uint32_t i, const Values& values) {
    if (i != origin.instr) return true;
    text += describe_call(leg.graph->instrs[i], values, env);
    return false;
  });
  return text;
}

size_t count_changed(const std::vector<Leg>& legs) {
  size_t changed = 0;
  for (const Leg& leg : legs) {
    for (const Given& given : leg.values) changed += given.was_changed();
    for (const auto& [input, given] : leg.buffers) changed += given.was_changed();
    for (const auto& [value, given] : leg.inputs) changed += given.was_changed();
  }
  return changed;
}

}  // namespace

std::string describe_origin(const std::vector<Leg>& legs, const capture::Collected& collected) {
  const auto origin = find_origin(legs);
  const size_t changed = count_changed(legs);
  std::string text;
  if (origin) {
    text = describe(legs[origin->leg], *origin, collected);
  } else if (!legs.back().graph) {
    text = format("they begin in {} or later: these nodes ran as themselves and cannot be replayed", place(collected, legs.back().call));
  } else {
    text = "where they began was not found: replayed through ATen, all is finite";
    if (changed == 0) text += ". A kernel rounds differently, or a tensor was written to behind autograd's back";
  }
  if (changed != 0)
    text += format(
        "\n{} of the tensors that the backward read were written to meanwhile, by a hook or a node: the replay saw what they are now",
        changed);
  return text;
}

}  // namespace hindcast::engine
