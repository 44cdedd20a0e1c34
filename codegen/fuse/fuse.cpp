#include "codegen/fuse/fuse.h"

#include "codegen/fuse/open_group.h"
#include "codegen/fuse/pointwise_ops.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

constexpr uint32_t kNone = 0xffffffffu;
// A kernel of more ops spills registers and takes long to compile; one of more tensors runs out of prefetch streams.
constexpr size_t kMaxMembers = 48;
constexpr size_t kMaxTensors = 40;
// Large tensors that a kernel reads, from places in memory that fall on the same lines of a cache.
constexpr size_t kMaxStreams = 12;
// Gradients of leaves that a kernel makes all at once, where the stock engine has one at a time: they must not raise the peak of
// memory. (Four large gradients of one kernel would all be there at the end anyway.)
constexpr int64_t kMaxKeptBytes = 1 << 20;
// Operands that others make while the kernel waits for more: added at once they are still in the innermost cache, and the next one
// is made in the same memory.
constexpr int64_t kMaxWaitingBytes = 1 << 15;
constexpr int64_t kLarge = 1 << 20;  // bytes

class Fuser {
 public:
  explicit Fuser(const Graph& graph)
      : graph_(graph), views_(graph), maker_(graph.values.size(), kNone), open_group_of_(graph.values.size(), kNone) {
    for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
      for (const ValueId value : graph.instrs[i].outputs) {
        if (value.defined()) maker_[value.index] = i;
      }
    }
    users_.resize(graph.values.size());
    is_done_.resize(graph.instrs.size());
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
      now_ = i;
      switch (instr.kind) {
        case InstrKind::Op:
        case InstrKind::Mutate:
        case InstrKind::AddGrads:
          if (is_done_[i]) break;
          if (views_.is_read_through(i)) {
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
    OpenGroup group;
    std::vector<uint32_t> sinks;  // follow the kernel
    int64_t kept_bytes = 0, waiting_bytes = 0, largest_bytes = 0;
    bool live = true;
  };

  const std::optional<Member>& member_of(uint32_t i) {
    const auto [known, is_new] = described_.try_emplace(i);
    if (is_new) known->second = describe(graph_, graph_.instrs[i]);
    return known->second;
  }

  ValueId source_of(ValueId value) const { return views_.source_of(value).value; }

  // A source that is a view is a broadcast in another shape: as a tensor it must be there before who reads it.
  bool is_view(ValueId source) const { return maker_[source.index] != kNone && views_.is_read_through(maker_[source.index]); }

  // Operands that are made while the group is open, by others.
  size_t operands_made_since(const OpenGroup& open, const Member& member) const {
    if (open.group().members.empty()) return 0;
    return static_cast<size_t>(std::count_if(member.operands.begin(), member.operands.end(), [&](const MemberOperand& operand) {
      const ValueId source = source_of(operand.value);
      const uint32_t maker = maker_[source.index];
      return maker != kNone && maker > open.group().members.front() && !open.makes(source) && !open.loads(source);
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

  std::optional<OpenGroup::Place> place_in(const Open& open, const Member& member) const {
    const Group& group = open.group.group();
    if (group.members.size() >= kMaxMembers || group.loads.size() + group.members.size() / 4 >= kMaxTensors) return std::nullopt;
    if (open.kept_bytes + member.bytes > std::max(kMaxKeptBytes, 4 * std::max(open.largest_bytes, member.bytes))) return std::nullopt;
    const auto waiting = static_cast<int64_t>(operands_made_since(open.group, member)) * member.bytes;
    if (open.waiting_bytes + waiting > kMaxWaitingBytes) return std::nullopt;
    return open.group.find_place(member);
  }

  bool join(uint32_t i) {
    const auto& member = member_of(i);
    if (member && member->kind == Member::Kind::Concat) return join_concat(i, *member);
    if (!member || !OpenGroup(graph_, views_).find_place(*member)) return false;

    for (const MemberOperand& operand : member->operands) {
      if (is_view(source_of(operand.value))) make_available(source_of(operand.value));
    }
    merge_makers(*member);
    // Groups that make its operands: one of its own kind takes it in, others must have run before.
    uint32_t into = kNone;
    std::optional<OpenGroup::Place> place;
    for (const MemberOperand& operand : member->operands) {
      const uint32_t g = open_group_of_[source_of(operand.value).index];
      if (g == kNone || g == into) continue;
      if (into == kNone && (place = place_in(open_[g], *member))) {
        into = g;
      } else {
        close(g, into == kNone ? "its reader has another domain, or it is full" : "two groups meet");
      }
    }
    // Groups that share nothing but their domain are one kernel only where the call costs more than the work.
    if (into == kNone && hint_of_numel(*graph_.symbols, member->sizes) <= kSmall) {
      for (uint32_t g = static_cast<uint32_t>(open_.size()); g-- > 0 && into == kNone;) {
        if (open_[g].live && (place = place_in(open_[g], *member))) into = g;
      }
    }
    if (into == kNone) {
      into = static_cast<uint32_t>(open_.size());
      open_.push_back({OpenGroup(graph_, views_), {}});
      place = open_[into].group.find_place(*member);
    }
    add(i, into, *member, *place);
    return true;
  }

  // Where one group makes all parts, it writes them to where they lie in the whole. That is there before the last part, where the stock
  // engine makes it behind, beside them all.
  bool join_concat(uint32_t i, const Member& member) {
    const auto group_of = [&](const MemberOperand& part) { return open_group_of_[source_of(part.value).index]; };
    if (std::any_of(member.operands.begin(), member.operands.end(), [&](const MemberOperand& part) { return group_of(part) == kNone; }))
      return false;
    merge_makers(member);
    const uint32_t into = group_of(member.operands[0]);
    const auto place = place_in(open_[into], member);
    if (!place) return false;
    add(i, into, member, *place);
    return true;
  }

  // Two open groups do not read each other. What both hold on to was there when the older one began, where the stock engine
  // holds all of it too: its peak is not raised, and what the member joins needs no memory.
  void merge_makers(const Member& member) {
    uint32_t into = kNone;
    for (const MemberOperand& operand : member.operands) {
      const uint32_t g = open_group_of_[source_of(operand.value).index];
      if (g == kNone || g == into) continue;
      if (into == kNone || !merge(into, g)) into = g;
    }
  }

  bool merge(uint32_t into, uint32_t from) {
    Open merged{OpenGroup(graph_, views_), open_[into].sinks};
    std::vector<uint32_t> members = open_[into].group.group().members;
    const std::vector<uint32_t>& others = open_[from].group.group().members;
    members.insert(members.end(), others.begin(), others.end());
    std::sort(members.begin(), members.end());
    for (const uint32_t i : members) {
      const auto& member = member_of(i);
      const auto place = place_in(merged, *member);
      if (!place) return false;
      add_to(merged, i, *member, *place);
    }
    if (merged.largest_bytes >= kLarge && merged.group.group().loads.size() > kMaxStreams) return false;
    merged.sinks.insert(merged.sinks.end(), open_[from].sinks.begin(), open_[from].sinks.end());
    std::sort(merged.sinks.begin(), merged.sinks.end());
    open_[into] = std::move(merged);
    open_[from].live = false;
    for (const uint32_t i : members) note_makers(i, into);
    return true;
  }

  void add(uint32_t i, uint32_t g, const Member& member, const OpenGroup::Place& place) {
    add_to(open_[g], i, member, place);
    is_done_[i] = true;
    note_makers(i, g);
  }

  void note_makers(uint32_t i, uint32_t g) {
    for (const ValueId output : graph_.instrs[i].outputs) {
      if (output.defined() && open_[g].group.makes(output)) open_group_of_[output.index] = g;
    }
  }

  void add_to(Open& open, uint32_t i, const Member& member, const OpenGroup::Place& place) const {
    open.waiting_bytes += static_cast<int64_t>(operands_made_since(open.group, member)) * member.bytes;
    open.largest_bytes = std::max(open.largest_bytes, member.bytes);
    open.group.add(i, member, place);
    for (const ValueId output : graph_.instrs[i].outputs) {
      if (!output.defined() || !open.group.makes(output)) continue;
      const auto& users = users_[output.index];
      const bool kept =
          std::any_of(users.begin(), users.end(), [&](uint32_t user) { return graph_.instrs[user].kind == InstrKind::Accumulate; });
      if (kept) open.kept_bytes += bytes_of(graph_, graph_.values[output.index]);
    }
  }

  // Accumulation of what an open group makes, or of another shape of it, waits for its kernel.
  bool delay(uint32_t i) {
    const ValueId value = graph_.instrs[i].inputs[0];
    if (!value.defined()) return false;
    const uint32_t g = open_group_of_[source_of(value).index];
    if (g == kNone) return false;
    std::vector<uint32_t> path;
    views_.append_views(value, path);
    for (const uint32_t view : std::vector<uint32_t>(path.rbegin(), path.rend())) {
      const auto waiting = std::find(waiting_views_.begin(), waiting_views_.end(), view);
      if (waiting == waiting_views_.end()) continue;
      waiting_views_.erase(waiting);
      open_[g].sinks.push_back(view);
    }
    open_[g].sinks.push_back(i);
    return true;
  }

  void emit(uint32_t i) {
    is_done_[i] = true;
    capture::for_each_use(graph_.instrs[i], [&](ValueId value) {
      if (value.defined()) make_available(value);
    });
    schedule_.items.push_back({false, i, 0});
  }

  void make_available(ValueId value) {
    const uint32_t g = open_group_of_[source_of(value).index];
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
      if (graph_.instrs[user].op && !find_pointwise_op(graph_.instrs[user].op->operator_name()))
        return graph_.instrs[user].op->operator_name().name;
    }
    return "a step that is no kernel";
  }

  void close_all(const std::string& why) {
    for (uint32_t g = 0; g < open_.size(); ++g) close(g, why);
  }

  void close(uint32_t g, const std::string& why) {
    if (!open_[g].live) return;
    draw_in_sums(g);
    open_[g].live = false;
    // What it loads must have been made.
    for (const ValueId load : std::vector<ValueId>(open_[g].group.group().loads)) make_available(load);
    for (const ValueId value : open_[g].group.unread()) make_available(value);
    Open& open = open_[g];
    const std::vector<uint32_t> members = open.group.group().members;
    for (const uint32_t member : members) {
      for (const ValueId made : graph_.instrs[member].outputs) {
        if (made.defined()) open_group_of_[made.index] = kNone;
      }
    }
    if (!is_worth_a_kernel(open.group.group(), open.largest_bytes)) {
      for (const ValueId input : inputs_of(members[0])) make_available(input);
      schedule_.items.push_back({false, members[0], 0});
    } else {
      Group group = open.group.finish([&](ValueId made) { return is_read_elsewhere(made, members); });
      group.stopped = why;
      add_leaves(group, open.sinks);
      if (!group.body.stores.empty()) {
        schedule_.items.push_back({true, static_cast<uint32_t>(schedule_.groups.size()), 0});
        schedule_.groups.push_back(std::move(group));
      }
    }
    for (const uint32_t sink : open_[g].sinks) schedule_.items.push_back({false, sink, 0});
  }

  // A single op is, where ATen's kernel passes over memory more often, or where the memory of the result can be recycled, or where it
  // reads what ATen would make for it alone.
  bool is_worth_a_kernel(const Group& group, int64_t bytes) {
    if (group.members.size() > 1) return true;
    const auto& member = member_of(group.members[0]);
    if (member->kind == Member::Kind::Rows) return true;
    const bool reads_padded =
        std::any_of(group.accesses.begin(), group.accesses.end(), [](const Access& access) { return !access.offsets.empty(); });
    return member->kind == Member::Kind::Pointwise && (reads_padded || bytes >= kLarge);
  }

  // Sums of what the group makes that come later in the segment: they are small, and read it while it is in cache.
  void draw_in_sums(uint32_t g) {
    for (size_t m = 0; m < open_[g].group.group().members.size(); ++m) {
      for (const ValueId made : graph_.instrs[open_[g].group.group().members[m]].outputs) {
        if (made.defined()) draw_in_sums_of(made, g);
      }
    }
  }

  void draw_in_sums_of(ValueId value, uint32_t g) {
    for (const uint32_t user : users_[value.index]) {
      if (segment_[user] != segment_[open_[g].group.group().members[0]]) continue;
      if (views_.is_read_through(user)) {
        draw_in_sums_of(graph_.instrs[user].outputs[0], g);
        continue;
      }
      if (user <= now_ || is_done_[user]) continue;
      const auto& member = member_of(user);
      if (!member || member->kind != Member::Kind::Sum || is_view(source_of(member->operands[0].value))) continue;
      if (const auto place = place_in(open_[g], *member)) add(user, g, *member, *place);
    }
  }

  // To a complex gradient the leaf adds itself: as ATen does, which multiplies by 1 and so tells a sum from a copy.
  void add_leaves(Group& group, const std::vector<uint32_t>& sinks) const {
    if (c10::isComplexType(group.body.compute)) return;
    for (uint32_t store = 0; store < group.stores.size(); ++store) {
      std::vector<uint32_t> leaves;
      for (const uint32_t sink : sinks) {
        if (graph_.instrs[sink].kind == InstrKind::Accumulate && graph_.instrs[sink].inputs[0] == group.stores[store])
          leaves.push_back(sink);
      }
      std::vector<uint32_t> inside = group.members;
      inside.insert(inside.end(), leaves.begin(), leaves.end());
      const bool is_taken = !is_read_elsewhere(group.stores[store], inside);
      for (const uint32_t leaf : leaves) group.leaves.push_back({store, leaf, is_taken && leaf == leaves.back()});
      if (group.body.stores[store].extent == Extent::Element) {
        // Small values stay in cache, and can as well be read again.
        const bool is_large = bytes_of(graph_, graph_.values[group.stores[store].index]) >= kLarge;
        if (is_large) group.body.stores[store].leaves = static_cast<uint32_t>(leaves.size());
        continue;
      }
      // Sums have memory in any case: a leaf whose gradient is another shape of one can add it all the same.
      for (const uint32_t sink : sinks) {
        if (graph_.instrs[sink].kind != InstrKind::Accumulate || graph_.instrs[sink].inputs[0] == group.stores[store]) continue;
        const Views::Source source = views_.source_of(graph_.instrs[sink].inputs[0]);
        if (source.value == group.stores[store] && source.offsets.empty()) group.leaves.push_back({store, sink, true});
      }
    }
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
      if (std::find(members.begin(), members.end(), user) != members.end()) continue;
      if (graph_.instrs[user].kind == InstrKind::NodeStart && segment_[user] == made_in) continue;
      if (views_.is_read_through(user) && !is_read_elsewhere(graph_.instrs[user].outputs[0], members)) continue;
      return true;
    }
    return false;
  }

  const Graph& graph_;
  const Views views_;
  std::vector<uint32_t> maker_, open_group_of_, segment_;
  std::vector<std::vector<uint32_t>> users_;
  std::unordered_map<uint32_t, std::optional<Member>> described_;  // by instr
  std::vector<bool> is_done_;                                      // in the schedule, or in a group
  std::vector<Open> open_;
  std::vector<uint32_t> waiting_views_;
  uint32_t now_ = 0;
  Schedule schedule_;
};

}  // namespace

Schedule Schedule::unfused(const Graph& graph) {
  Schedule schedule;
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) schedule.items.push_back({false, i, graph.instrs[i].call + 1});
  return schedule;
}

Schedule fuse(const Graph& graph) { return Fuser(graph).run(); }

}  // namespace hindcast::codegen
