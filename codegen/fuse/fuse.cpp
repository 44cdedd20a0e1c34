#include "codegen/fuse/fuse.h"

#include "codegen/fuse/pointwise_ops.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::ExprId;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Value;
using capture::ValueId;

constexpr uint32_t kNone = 0xffffffffu;
// A kernel of more ops spills registers and takes long to compile; one of more tensors runs out of prefetch streams.
constexpr size_t kMaxMembers = 48;
constexpr size_t kMaxTensors = 40;
// Groups that share nothing but their domain are one kernel only where the call costs more than the work.
constexpr int64_t kSmall = 4096;
// Gradients of leaves that a kernel makes all at once, and operands that wait for it, where the stock engine has one at a
// time: they must not raise the peak of memory. (Four large gradients of one kernel would all be there at the end anyway.)
constexpr int64_t kMaxWaitingBytes = 1 << 20;

int64_t hint_of_numel(const Graph& graph, const std::vector<ExprId>& sizes) {
  int64_t numel = 1;
  for (const ExprId size : sizes) numel *= graph.symbols->hint(size);
  return numel;
}

// A sparse or mkldnn value has no strides.
bool is_strided(const Value& value) { return value.strides.size() == value.sizes.size(); }

// Dims from outermost to innermost, if the value is dense in that order and its strides follow from that. The strides of dims
// of size 1 say nothing about memory, and ATen chooses them by more rules than one: only a contiguous tensor's are known.
std::optional<std::vector<uint8_t>> dense_order(const Graph& graph, const Value& value) {
  const size_t rank = value.sizes.size();
  std::vector<int64_t> hints(rank);
  for (size_t i = 0; i < rank; ++i) hints[i] = graph.symbols->hint(value.sizes[i]);
  std::vector<uint8_t> order(rank);
  std::iota(order.begin(), order.end(), uint8_t(0));
  const auto is_dense = [&] {
    int64_t expected = 1;
    for (size_t i = rank; i-- > 0; expected *= std::max<int64_t>(hints[order[i]], 1)) {
      if (value.strides[order[i]] != expected) return false;
    }
    return true;
  };
  if (is_dense()) return order;
  if (std::find(hints.begin(), hints.end(), 1) != hints.end()) return std::nullopt;
  std::stable_sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) { return value.strides[a] > value.strides[b]; });
  if (is_dense()) return order;
  return std::nullopt;
}

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : graph_(graph), maker_(graph.values.size(), kNone), open_group_of_(graph.values.size(), kNone) {
    for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
      for (const ValueId value : graph.instrs[i].outputs) {
        if (value.defined()) maker_[value.index] = i;
      }
    }
    users_.resize(graph.values.size());
    uint32_t segment = 0;
    for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
      if (capture::is_boundary(graph.instrs[i])) ++segment;
      segment_.push_back(segment);
      capture::for_each_use(graph.instrs[i], [&](ValueId value) {
        if (value.defined()) users_[value.index].push_back(i);
      });
    }
  }

  Schedule run() {
    bool first_node = true;  // the next one looks at all of its segment
    const bool looks_again =
        graph_.first_call != 0 || graph_.stage != capture::Stage::NodeStart ||
        std::any_of(graph_.instrs.begin(), graph_.instrs.end(), [](const Instr& i) { return capture::is_boundary(i); });
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      switch (instr.kind) {
        case InstrKind::Op:
        case InstrKind::AddGrads:
          if (is_expand(instr)) {
            waiting_views_.push_back(i);
          } else if (!join(i)) {
            emit(i);
          }
          break;
        case InstrKind::NodeStart:
          // A kernel has no place inside where the rest could be left to the nodes themselves.
          if (first_node && looks_again) {
            close_all("user code may have changed the next node");
            emit_views_read_after(i);
          }
          schedule_.items.push_back({false, i, first_node ? end_of_segment(i) : 0});
          first_node = false;
          break;
        case InstrKind::Accumulate:
        case InstrKind::Capture:
          if (!capture::is_boundary(instr) && delay(i)) break;
          [[fallthrough]];
        default:
          if (!capture::is_boundary(instr)) {
            emit(i);
            break;
          }
          close_all("a boundary");
          emit_views_read_after(i);
          emit(i);
          // A hook looks at its own node, whose formula may follow, and like a called node at all nodes of the segment behind it;
          // behind post-accumulate hooks, the first node does.
          first_node = instr.kind == InstrKind::Accumulate;
          if (!first_node) schedule_.items.back().end_call = std::max(instr.call + 1, end_of_segment(i + 1));
      }
    }
    close_all("the end of the graph");
    return std::move(schedule_);
  }

 private:
  struct Open {
    Group group;
    std::vector<uint32_t> sinks;                     // follow the kernel
    std::unordered_map<uint32_t, Operand> operands;  // of loaded values and made ones
    int64_t kept_bytes = 0, waiting_bytes = 0;
    bool live = true;
  };

  class Builder final : public BodyBuilder {
   public:
    Builder(Fuser& fuser, Open& open) : fuser_(fuser), open_(open) {}
    Operand tensor(const Arg& arg) override { return value(arg.values[0]); }
    Operand value(ValueId value) {
      const ValueId base = fuser_.resolve(value, &open_.group.views);
      const auto found = open_.operands.find(base.index);
      if (found != open_.operands.end()) return found->second;
      Body& body = open_.group.body;
      const Operand load{Operand::Kind::Load, static_cast<uint32_t>(body.loads.size())};
      body.loads.push_back({fuser_.graph_.values[base.index].dtype, fuser_.walk_of(base, open_.group)});
      open_.group.loads.push_back(base);
      open_.operands.emplace(base.index, load);
      return load;
    }
    Operand scalar(const Arg& arg) override {
      open_.group.scalars.push_back(arg);
      return {Operand::Kind::Scalar, open_.group.body.scalars++};
    }
    Operand number(double value) override {
      Arg arg;
      arg.constant = value;
      return scalar(arg);
    }
    Operand op(std::string_view function, std::vector<Operand> args) override {
      open_.group.body.ops.push_back({function, std::move(args)});
      return {Operand::Kind::Result, static_cast<uint32_t>(open_.group.body.ops.size() - 1)};
    }

   private:
    Fuser& fuser_;
    Open& open_;
  };

  // A broadcast that a kernel reads through.
  bool is_expand(const Instr& instr) const {
    if (instr.kind != InstrKind::Op) return false;
    const auto& name = instr.op->operator_name();
    return name.name == "aten::expand" && name.overload_name.empty() && instr.args[0].kind == Arg::Kind::Value &&
           instr.args[0].values[0].defined();
  }

  ValueId resolve(ValueId value, std::vector<uint32_t>* views = nullptr) const {
    while (maker_[value.index] != kNone && is_expand(graph_.instrs[maker_[value.index]])) {
      if (views) views->push_back(maker_[value.index]);
      value = graph_.instrs[maker_[value.index]].args[0].values[0];
    }
    return value;
  }

  bool broadcasts_to(const Value& value, const std::vector<ExprId>& domain) const {
    if (value.sizes.size() > domain.size()) return false;
    const size_t ahead = domain.size() - value.sizes.size();
    for (size_t i = 0; i < value.sizes.size(); ++i) {
      if (!(value.sizes[i] == domain[ahead + i]) && graph_.symbols->constant(value.sizes[i]) != 1) return false;
    }
    return true;
  }

  // How the innermost dim that is no single step passes over the value.
  Walk walk_of(ValueId id, const Group& group) const {
    const Value& value = graph_.values[id.index];
    const size_t ahead = group.domain.size() - value.sizes.size();
    for (size_t i = group.order.size(); i-- > 0;) {
      const uint8_t dim = group.order[i];
      if (graph_.symbols->hint(group.domain[dim]) == 1) continue;
      return dim < ahead || graph_.symbols->hint(value.sizes[dim - ahead]) == 1 || value.strides[dim - ahead] == 0 ? Walk::Still
                                                                                                                   : Walk::Dense;
    }
    return Walk::Dense;
  }

  // The operands in ATen's places; false if the op is none that a kernel can compute.
  bool can_fuse(const Instr& instr, std::vector<ValueId>& tensors) const {
    if (instr.outputs.size() != 1 || !instr.outputs[0].defined()) return false;
    const Value& result = graph_.values[instr.outputs[0].index];
    if (!result.defined || result.is_view || !result.device.is_cpu()) return false;
    if (result.dtype != at::kFloat && result.dtype != at::kDouble) return false;
    if (result.sizes.size() > 8 || !is_strided(result)) return false;
    uint32_t mask_args = 0;
    if (instr.kind == InstrKind::AddGrads) {
      tensors = {instr.inputs[0], instr.inputs[1]};
    } else {
      const PointwiseOp* op = find_pointwise_op(*instr.op);
      if (!op || (op->accepts && !op->accepts(instr.args))) return false;
      if (op->reduces_angles && (result.dtype != at::kFloat || hint_of_numel(graph_, result.sizes) > kSmall)) return false;
      mask_args = op->mask_args;
      for (uint32_t i = 0; i < instr.args.size(); ++i) {
        const Arg& arg = instr.args[i];
        if (arg.kind == Arg::Kind::ValueList || arg.kind == Arg::Kind::OptionalValueList || arg.kind == Arg::Kind::IntList) return false;
        if (arg.kind == Arg::Kind::Constant && arg.constant.isTensor()) return false;
        if (arg.kind == Arg::Kind::Constant && arg.constant.isNone() && !(op->may_be_none >> i & 1)) return false;
        if (arg.kind == Arg::Kind::Constant && arg.constant.isScalar() && arg.constant.toScalar().isComplex()) return false;
        if (arg.kind != Arg::Kind::Value) continue;
        if (!arg.values[0].defined()) return false;
        tensors.push_back(arg.values[0]);
        const at::ScalarType type = graph_.values[arg.values[0].index].dtype;
        if (type != result.dtype && !((mask_args >> i & 1) && type == at::kBool)) return false;
      }
    }
    for (const ValueId id : tensors) {
      if (!id.defined()) return false;
      const Value& value = graph_.values[resolve(id).index];
      if (!value.defined || !is_strided(value) || !value.device.is_cpu() || !broadcasts_to(value, result.sizes)) return false;
      if (instr.kind == InstrKind::AddGrads && value.dtype != result.dtype) return false;
    }
    return !tensors.empty();
  }

  // Operands that are made while the group is open, by others.
  size_t operands_made_since(const Open& open, const std::vector<ValueId>& tensors) const {
    if (open.group.members.empty()) return 0;
    return static_cast<size_t>(std::count_if(tensors.begin(), tensors.end(), [&](ValueId tensor) {
      const ValueId base = resolve(tensor);
      const uint32_t maker = maker_[base.index];
      return maker != kNone && maker > open.group.members.front() && !open.operands.contains(base.index);
    }));
  }

  // Behind the last node that starts before the next boundary.
  uint32_t end_of_segment(uint32_t node_start) const {
    uint32_t end = 0;
    for (uint32_t i = node_start; i < graph_.instrs.size() && !capture::is_boundary(graph_.instrs[i]); ++i) {
      if (graph_.instrs[i].kind == InstrKind::NodeStart) end = graph_.instrs[i].call + 1;
    }
    return end;
  }

  bool join(uint32_t i) {
    const Instr& instr = graph_.instrs[i];
    std::vector<ValueId> tensors;
    if (!can_fuse(instr, tensors)) return false;
    const Value& result = graph_.values[instr.outputs[0].index];
    const auto order = dense_order(graph_, result);
    if (!order) return false;
    const int64_t bytes = hint_of_numel(graph_, result.sizes) * static_cast<int64_t>(c10::elementSize(result.dtype));

    // Groups that make its operands: one of its own kind takes it in, others must have run before.
    uint32_t into = kNone;
    const auto fits = [&](uint32_t g) {
      const Open& open = open_[g];
      return open.group.domain == result.sizes && open.group.body.compute == result.dtype && open.group.order == *order &&
             open.group.members.size() < kMaxMembers && open.group.loads.size() + open.group.members.size() / 4 < kMaxTensors &&
             open.kept_bytes + bytes <= std::max(kMaxWaitingBytes, 4 * bytes) &&
             open.waiting_bytes + static_cast<int64_t>(operands_made_since(open, tensors)) * bytes <= kMaxWaitingBytes;
    };
    for (const ValueId tensor : tensors) {
      const uint32_t g = open_group_of_[resolve(tensor).index];
      if (g == kNone || g == into) continue;
      if (into == kNone && fits(g)) {
        into = g;
      } else {
        close(g, into == kNone ? "its reader has another domain, or it is full" : "two groups meet");
      }
    }
    if (into == kNone && hint_of_numel(graph_, result.sizes) <= kSmall) {
      for (uint32_t g = static_cast<uint32_t>(open_.size()); g-- > 0 && into == kNone;) {
        if (open_[g].live && fits(g)) into = g;
      }
    }
    if (into == kNone) {
      into = static_cast<uint32_t>(open_.size());
      Open& open = open_.emplace_back();
      open.group.domain = result.sizes;
      open.group.order = *order;
      open.group.body.compute = result.dtype;
    }
    add(i, into, bytes, tensors);
    return true;
  }

  void add(uint32_t i, uint32_t g, int64_t bytes, const std::vector<ValueId>& tensors) {
    const Instr& instr = graph_.instrs[i];
    Open& open = open_[g];
    open.waiting_bytes += static_cast<int64_t>(operands_made_since(open, tensors)) * bytes;
    Builder builder(*this, open);
    Operand made;
    if (instr.kind == InstrKind::AddGrads) {
      const Operand first = builder.value(instr.inputs[0]);
      made = builder.op("add", {first, builder.value(instr.inputs[1])});
    } else {
      made = find_pointwise_op(*instr.op)->build(builder, instr.args);
    }
    open.operands.emplace(instr.outputs[0].index, made);
    open.group.members.push_back(i);
    open_group_of_[instr.outputs[0].index] = g;
    const auto& users = users_[instr.outputs[0].index];
    const bool kept =
        std::any_of(users.begin(), users.end(), [&](uint32_t user) { return graph_.instrs[user].kind == InstrKind::Accumulate; });
    if (kept) open.kept_bytes += bytes;
  }

  // Accumulation of what an open group makes waits for its kernel.
  bool delay(uint32_t i) {
    const ValueId value = graph_.instrs[i].inputs[0];
    if (!value.defined()) return false;
    const uint32_t g = open_group_of_[value.index];
    if (g == kNone) return false;
    open_[g].sinks.push_back(i);
    return true;
  }

  void emit(uint32_t i) {
    capture::for_each_use(graph_.instrs[i], [&](ValueId value) {
      if (value.defined()) make_available(value);
    });
    schedule_.items.push_back({false, i, 0});
  }

  void make_available(ValueId value) {
    const uint32_t g = open_group_of_[value.index];
    if (g != kNone) close(g, "its result is read by " + reader_name(value));
    const uint32_t maker = maker_[value.index];
    const auto waiting = std::find(waiting_views_.begin(), waiting_views_.end(), maker);
    if (maker == kNone || waiting == waiting_views_.end()) return;
    waiting_views_.erase(waiting);
    emit(maker);
  }

  // What waits at a boundary exists as a tensor.
  void emit_views_read_after(uint32_t i) {
    for (const uint32_t view : std::vector<uint32_t>(waiting_views_)) {
      const ValueId value = graph_.instrs[view].outputs[0];
      const auto& users = users_[value.index];
      if (!users.empty() && users.back() > i) make_available(value);
    }
  }

  std::string reader_name(ValueId value) const {
    for (const uint32_t user : users_[value.index]) {
      if (graph_.instrs[user].op && !find_pointwise_op(*graph_.instrs[user].op)) return graph_.instrs[user].op->operator_name().name;
    }
    return "a step that is no kernel";
  }

  void close_all(const std::string& why) {
    for (uint32_t g = 0; g < open_.size(); ++g) close(g, why);
  }

  void close(uint32_t g, const std::string& why) {
    if (!open_[g].live) return;
    open_[g].live = false;
    // What it loads must have been made.
    for (const ValueId load : std::vector<ValueId>(open_[g].group.loads)) make_available(load);
    Open& open = open_[g];
    Group& group = open.group;
    for (const uint32_t member : group.members) {
      const ValueId made = graph_.instrs[member].outputs[0];
      open_group_of_[made.index] = kNone;
    }
    if (group.members.size() == 1) {
      for (const ValueId input : inputs_of(group.members[0])) make_available(input);
      schedule_.items.push_back({false, group.members[0], 0});
    } else {
      group.stopped = why;
      for (const uint32_t member : group.members) {
        const ValueId made = graph_.instrs[member].outputs[0];
        if (!is_read_elsewhere(made, group.members)) continue;
        group.stores.push_back(made);
        group.body.stores.push_back(open.operands.at(made.index));
      }
      if (!group.stores.empty()) {
        schedule_.items.push_back({true, static_cast<uint32_t>(schedule_.groups.size()), 0});
        schedule_.groups.push_back(std::move(group));
      }
    }
    for (const uint32_t sink : open.sinks) schedule_.items.push_back({false, sink, 0});
  }

  std::vector<ValueId> inputs_of(uint32_t i) const {
    std::vector<ValueId> inputs;
    capture::for_each_use(graph_.instrs[i], [&](ValueId value) {
      if (value.defined()) inputs.push_back(value);
    });
    return inputs;
  }

  bool is_read_elsewhere(ValueId value, const std::vector<uint32_t>& members) const {
    const uint32_t made_in = segment_[maker_[value.index]];
    for (const uint32_t user : users_[value.index]) {
      if (std::binary_search(members.begin(), members.end(), user)) continue;
      if (graph_.instrs[user].kind == InstrKind::NodeStart && segment_[user] == made_in) continue;
      if (is_expand(graph_.instrs[user])) {
        if (!is_read_elsewhere(graph_.instrs[user].outputs[0], members)) continue;
      }
      return true;
    }
    return false;
  }

  const Graph& graph_;
  std::vector<uint32_t> maker_, open_group_of_, segment_;
  std::vector<std::vector<uint32_t>> users_;
  std::vector<Open> open_;
  std::vector<uint32_t> waiting_views_;
  Schedule schedule_;
};

}  // namespace

Schedule Schedule::unfused(const Graph& graph) {
  Schedule schedule;
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) schedule.items.push_back({false, i, graph.instrs[i].call + 1});
  return schedule;
}

Schedule fuse(const Graph& graph) { return Fuser(graph).run(); }

std::vector<uint32_t> instrs_of(const Group& group) {
  std::vector<uint32_t> instrs = group.views;
  instrs.insert(instrs.end(), group.members.begin(), group.members.end());
  std::sort(instrs.begin(), instrs.end());
  instrs.erase(std::unique(instrs.begin(), instrs.end()), instrs.end());
  return instrs;
}

}  // namespace hindcast::codegen
