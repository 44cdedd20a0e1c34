// The replay runs twice: first to learn which values are not finite, keeping no more of them than a backward does; then up to the op
// that is to be shown.
//
// That is not the first op with an infinity in its result: masks hold infinities, formulas divide by zero where they do not look. From
// the gradients it goes back, from value to value that is not finite, and of all places where that ends it is the earliest.

#include "engine/diagnosis/nan_origin.h"

#include "base/check.h"
#include "base/format.h"
#include "engine/diagnosis/non_finite.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <unordered_map>

namespace hindcast::engine {
namespace {

using base::format;
using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;
using Values = std::unordered_map<uint32_t, at::Tensor>;

constexpr uint32_t kNone = 0xffffffffu;

capture::Env env_of(const Leg& leg) {
  if (leg.env) return *leg.env;
  capture::Env env;
  const auto& symbols = *leg.graph->symbols;
  HC_CHECK(capture::Evaluator(symbols).evaluate(capture::bindings_at_capture(symbols), env));
  return env;
}

Values given_to(const Leg& leg) {
  Values values;
  for (const auto& [value, given] : leg.inputs) values[value.index] = given.tensor;
  const auto& starts = leg.graph->resume_inputs;
  for (size_t i = 0; i < starts.size(); ++i) {
    if (starts[i].defined())
      values[starts[i].index] = i < leg.values.size() ? leg.values[i].tensor : leg.buffers[i - leg.values.size()].second.tensor;
  }
  return values;
}

/// Sees the values before those that the instr reads last are dropped; false: enough.
using Visit = std::function<bool(uint32_t instr, const Values& values)>;

/// Up to the end, or the first op that throws.
void replay(const Leg& leg, const Visit& visit) {
  const Graph& graph = *leg.graph;
  const capture::Env env = env_of(leg);
  std::vector<uint32_t> last_use(graph.values.size(), kNone);
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    capture::for_each_use(graph.instrs[i], [&](ValueId value) {
      if (value.defined()) last_use[value.index] = i;
    });
  }
  Values values = given_to(leg);
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    capture::Graph::replay(values, {&graph.instrs[i], 1}, env);
    if (!visit(i, values)) return;
    const auto drop = [&](ValueId value) {
      if (value.defined() && (last_use[value.index] == i || last_use[value.index] == kNone)) values.erase(value.index);
    };
    capture::for_each_use(graph.instrs[i], drop);
    for (const ValueId value : graph.instrs[i].outputs) drop(value);
  }
}

/// By ValueId: not finite.
std::vector<bool> find_non_finite(const Leg& leg) {
  std::vector<bool> found(leg.graph->values.size());
  for (const auto& [value, tensor] : given_to(leg)) found[value] = has_non_finite(tensor);
  try {
    replay(leg, [&](uint32_t i, const Values& values) {
      const Instr& instr = leg.graph->instrs[i];
      for (const ValueId value : instr.outputs) {
        if (const auto made = values.find(value.index); value.defined() && made != values.end())
          found[value.index] = has_non_finite(made->second);
      }
      return true;
    });
  } catch (const std::exception&) {  // the op at which the backward threw
  }
  return found;
}

struct Origin {
  size_t leg = 0;
  uint32_t instr = kNone;  // that made it, or that reads `given`; kNone: a gradient that only nodes read that ran as themselves
  ValueId given;           // undefined: the instr made it of finite values
};

class Search {
 public:
  explicit Search(const std::vector<Leg>& legs) : legs_(legs) {}

  std::optional<Origin> run() {
    for (size_t l = 0; l < legs_.size(); ++l) {
      if (legs_[l].not_finite.empty()) continue;
      std::vector<Use> uses;
      for (const ValueId value : legs_[l].not_finite) uses.push_back({value, kNone});
      return in_leg(l, uses);
    }
    // It came out of nodes that nobody recorded: had it flown in there?
    return before(legs_.size() - 1, {});
  }

 private:
  struct Use {
    ValueId value;
    uint32_t reader;
  };

  std::optional<Origin> in_leg(size_t l, std::vector<Use> uses) const {
    const Graph& graph = *legs_[l].graph;
    const std::vector<bool> not_finite = find_non_finite(legs_[l]);
    std::vector<uint32_t> maker(graph.values.size(), kNone);
    for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
      for (const ValueId value : graph.instrs[i].outputs) {
        if (value.defined()) maker[value.index] = i;
      }
    }
    std::optional<Origin> earliest;
    const auto consider = [&](uint32_t instr, ValueId given) {
      if (!earliest || instr < earliest->instr) earliest = Origin{l, instr, given};
    };
    std::vector<bool> seen(graph.instrs.size());
    std::vector<ValueId> from_before;
    while (!uses.empty()) {
      const Use use = uses.back();
      uses.pop_back();
      if (!use.value.defined() || !not_finite[use.value.index]) continue;
      const uint32_t made_by = maker[use.value.index];
      if (made_by == kNone) {
        const auto& starts = graph.resume_inputs;
        if (l > 0 && std::find(starts.begin(), starts.end(), use.value) != starts.end()) from_before.push_back(use.value);
        consider(use.reader, use.value);
        continue;
      }
      if (seen[made_by]) continue;
      seen[made_by] = true;
      bool any = false;
      capture::for_each_use(graph.instrs[made_by], [&](ValueId value) {
        if (!value.defined() || !not_finite[value.index]) return;
        uses.push_back({value, made_by});
        any = true;
      });
      if (!any) consider(made_by, {});
    }
    if (!from_before.empty()) {
      if (auto origin = before(l, from_before)) return origin;
    }
    return earliest;
  }

  // What flowed into leg `l`: `starts` of its graph, or all that is not finite where it has none.
  std::optional<Origin> before(size_t l, const std::vector<ValueId>& starts) const {
    const Leg& leg = legs_[l];
    const auto comes_in = [&](size_t i, const at::Tensor& tensor) {
      if (!leg.graph) return has_non_finite(tensor);
      return std::find(starts.begin(), starts.end(), leg.graph->resume_inputs[i]) != starts.end();
    };
    std::vector<size_t> values, buffers;
    for (size_t i = 0; i < leg.values.size(); ++i) {
      if (comes_in(i, leg.values[i].tensor)) values.push_back(i);
    }
    for (size_t i = 0; i < leg.buffers.size(); ++i) {
      if (comes_in(leg.values.size() + i, leg.buffers[i].second.tensor)) buffers.push_back(i);
    }
    if (values.empty() && buffers.empty()) return std::nullopt;
    if (l == 0) return Origin{0, kNone, {}};
    const Graph& former = *legs_[l - 1].graph;
    const uint32_t left_at = boundary(former, leg);
    if (left_at == kNone) return std::nullopt;
    std::vector<Use> uses;
    if (!values.empty()) {
      const std::vector<bool> not_finite = find_non_finite(legs_[l - 1]);
      capture::for_each_use(former.instrs[left_at], [&](ValueId value) {
        if (value.defined() && not_finite[value.index]) uses.push_back({value, left_at});
      });
      if (uses.empty() && buffers.empty()) return Origin{l - 1, left_at, {}};
    }
    for (const size_t i : buffers) {
      ValueId waiting;
      for (uint32_t e = 0; e < former.instrs[left_at].buffer_events; ++e) {
        if (former.buffer_events[e].input == leg.buffers[i].first) waiting = former.buffer_events[e].value;
      }
      uses.push_back({waiting, left_at});
    }
    return in_leg(l - 1, std::move(uses));
  }

  static uint32_t boundary(const Graph& graph, const Leg& next) {
    const auto is_it = [&](const Instr& instr) {
      if (instr.call != next.call) return false;
      switch (next.stage) {
        case capture::Stage::NodeStart:
          return instr.kind == InstrKind::NodeStart;
        case capture::Stage::AfterTensorPre:
          return instr.kind == InstrKind::Hook && instr.stage == capture::HookStage::TensorPre;
        case capture::Stage::AfterPre:
          return instr.kind == InstrKind::Hook && instr.stage == capture::HookStage::Pre;
        case capture::Stage::AfterCall:
          return instr.kind == InstrKind::CallNode;
        case capture::Stage::AfterPost:
          return instr.kind == InstrKind::Hook && instr.stage == capture::HookStage::Post;
      }
      return false;
    };
    const auto found = std::find_if(graph.instrs.begin(), graph.instrs.end(), is_it);
    return found == graph.instrs.end() ? kNone : static_cast<uint32_t>(found - graph.instrs.begin());
  }

  const std::vector<Leg>& legs_;
};

// ---- words

std::string place(const capture::Collected& collected, uint32_t call) {
  return format("{} (NodeCall {})", collected.calls[call].node->name(), call + 1);
}

std::string what(const Instr& instr) {
  switch (instr.kind) {
    case InstrKind::Op:
    case InstrKind::Mutate: {
      const auto& name = instr.op->operator_name();
      return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    }
    case InstrKind::AddGrads:
      return "the sum of two gradients behind";
    case InstrKind::Hook:
      return instr.stage == capture::HookStage::TensorPre ? "a tensor hook at"
             : instr.stage == capture::HookStage::Pre     ? "a pre-hook of"
                                                          : "a post-hook of";
    case InstrKind::CallNode:
      return "the call of";
    case InstrKind::Accumulate:
      return "the accumulation at";
    default:
      return "a result at";
  }
}

/// "aten::exp of ExpBackward0 (NodeCall 2)", "a tensor hook at MulBackward0 (NodeCall 3)".
std::string name_of(const Instr& instr, const capture::Collected& collected) {
  const bool is_op = instr.kind == InstrKind::Op || instr.kind == InstrKind::Mutate;
  return what(instr) + (is_op ? " of " : " ") + place(collected, instr.call);
}

/// As Graph::print() calls it.
std::string name_of(const Graph& graph, ValueId value) {
  for (size_t i = 0; i < graph.resume_inputs.size(); ++i) {
    if (graph.resume_inputs[i] == value) return format("tangents_{}", i + 1);
  }
  size_t saved = 0;
  for (const ValueId input : graph.tensor_inputs) {
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
  explicit Lines(Values&&) = delete;  // it only refers to them

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
  if (origin.instr == kNone && !origin.given.defined()) return "the gradient at the root was not finite already";
  const std::string reader = origin.instr == kNone ? std::string() : ", read by " + name_of(leg.graph->instrs[origin.instr], collected);
  if (!origin.given.defined())
    return format("they begin in {}, which was given finite values", name_of(leg.graph->instrs[origin.instr], collected));
  const std::string name = name_of(*leg.graph, origin.given);
  const auto& starts = leg.graph->resume_inputs;
  if (std::find(starts.begin(), starts.end(), origin.given) != starts.end())
    return format("the gradient at the root was not finite already: {}{}", name, reader);
  return format("a value that the forward saved was not finite already: {}{}", name, reader);
}

std::string describe(const Leg& leg, const Origin& origin, const capture::Collected& collected) {
  std::string text = first_words(leg, origin, collected);
  if (!leg.graph) return text;
  if (leg.env) text += format(" (graph {})", leg.graph->id);
  if (origin.instr == kNone) {
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

Given::Given(at::Tensor given) : tensor(std::move(given)) {
  if (tensor.defined() && !tensor.is_inference()) version = static_cast<uint32_t>(tensor._version());
}

bool Given::was_changed() const {
  return tensor.defined() && !tensor.is_inference() && static_cast<uint32_t>(tensor._version()) != version;
}

std::string describe_origin(const std::vector<Leg>& legs, const capture::Collected& collected) {
  const auto origin = Search(legs).run();
  const size_t changed = count_changed(legs);
  std::string text;
  if (origin) {
    text = describe(legs[origin->leg], *origin, collected);
  } else if (!legs.back().graph) {
    text = format("they begin in {} or later: these nodes ran as themselves and cannot be replayed", place(collected, legs.back().call));
  } else {
    text = "where they began was not found: replayed through ATen, all is finite";
    if (changed == 0) text += ". A kernel rounds otherwise, or a tensor was written to behind autograd's back";
  }
  if (changed != 0)
    text += format(
        "\n{} of the tensors that the backward read were written to meanwhile, by a hook or a node: the replay saw what they are now",
        changed);
  return text;
}

}  // namespace hindcast::engine
