#include "codegen/fuse/fuse.h"

#include "base/check.h"
#include "base/index.h"
#include "capture/graph/value_uses.h"
#include "codegen/fuse/open_group.h"
#include "codegen/fuse/pointwise_ops.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

using capture::EventOrder;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::ValueId;

class Fuser {
 public:
  Fuser(const Graph& graph, const CostModel& costs)
      : graph_(graph),
        costs_(costs),
        views_(graph, costs),
        may_be_left_(Schedule::may_be_left(graph)),
        uses_(graph),
        open_group_of_(graph.values.size(), base::kNoIndex) {
    is_done_.resize(graph.instrs.size());
    uint32_t segment = 0;
    for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
      if (capture::is_barrier(graph.instrs[i]) || graph.binds_sizes(graph.instrs[i])) ++segment;
      segment_.push_back(segment);
    }
  }

  Schedule run() {
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      now_ = i;
      if (capture::is_barrier(instr)) {
        pass_barrier(i);
      } else if (graph_.binds_sizes(instr)) {
        close_all("a size depends on data");
        emit(i);
      } else if (instr.kind == InstrKind::Event) {
        pass_event(i);
      } else if (!is_done_[i]) {
        if (views_.is_read_through(i)) {
          waiting_views_.push_back(i);
        } else if (!join(i)) {
          emit(i);
        }
      }
    }
    close_all("the end of the graph");
    for (const ValueId value : graph_.outputs) {
      if (value.defined()) make_available(value);
    }
    return std::move(schedule_);
  }

 private:
  struct Open {
    OpenGroup group;
    std::vector<uint32_t> sinks;  // events that run after the kernel
    std::vector<uint32_t> reads;  // groups that were open when a member read them
    int64_t kept_bytes = 0, waiting_bytes = 0, largest_bytes = 0, made_bytes = 0;
    bool live = true;
  };

  void pass_event(uint32_t i) {
    switch (graph_.instrs[i].order) {
      case EventOrder::Late:
        if (!delay(i)) emit(i);
        break;
      case EventOrder::Leave:  // the rest may be handed back to the stock engine here, which is not possible inside a kernel
        close_all("user code may have changed the next node");
        emit_views_read_after(i);
        schedule_.items.push_back({false, i});
        break;
      case EventOrder::Here:
        if (!capture::waits(graph_.instrs[i])) {
          emit(i);
        } else if (may_be_left_) {
          schedule_.items.push_back({false, i});
        }
        break;
      case EventOrder::Barrier:
        break;
    }
  }

  void pass_barrier(uint32_t i) {
    close_all("a boundary");
    emit_views_read_after(i);
    emit(i);
  }

  // nullopt if no kernel can compute the instr, or if ATen is faster.
  const std::optional<Member>& member_of(uint32_t i) {
    const auto [known, is_new] = described_.try_emplace(i);
    auto& member = known->second;
    if (is_new) member = describe(graph_, graph_.instrs[i]);
    if (is_new && member && member->device->type() != costs_.device()) member.reset();
    if (is_new && member && member->product_shape && !costs_.is_worth_it(*member->product_shape)) member.reset();
    if (is_new && member && member->checks_indices && !costs_.checks_indices()) member.reset();
    if (is_new && member && is_returned_sum_of_all(i, *member)) member.reset();
    if (is_new && member && member->segmented_norm && !costs_.is_worth_it(*member->segmented_norm)) member.reset();
    return member;
  }

  // Such a sum may be used as a guard of the program, as in `x.sum().item()`: then it must have the bits that ATen computed during tracing.
  bool is_returned_sum_of_all(uint32_t i, const Member& member) const {
    const ValueId result = graph_.instrs[i].outputs[0];
    return member.kind == Member::Kind::Reduction && graph_.values[result.index].sizes.empty() && uses_.is_returned(result);
  }

  std::optional<OpenGroup::Place> find_place(const OpenGroup& group, const Member& member) const {
    auto place = group.find_place(member);
    if (place && place->new_rows && !costs_.is_worth_it(*place->new_rows)) place.reset();
    return place;
  }

  ValueId source_of(ValueId value) const { return views_.source_of(value).value; }

  // A source that is itself a view (a reshaped broadcast) must exist as a tensor before its reader runs.
  bool is_view(ValueId source) const { return uses_.maker_of(source) != base::kNoIndex && views_.is_read_through(uses_.maker_of(source)); }

  // Bytes of the operands that other steps computed since the group was opened.
  int64_t bytes_made_since(const OpenGroup& open, const Member& member) const {
    if (open.group().members.empty()) return 0;
    int64_t bytes = 0;
    for (const MemberOperand& operand : member.operands) {
      const ValueId source = source_of(operand.value);
      const uint32_t maker = uses_.maker_of(source);
      if (maker == base::kNoIndex || maker <= open.group().members.front() || open.makes(source) || open.loads(source)) continue;
      bytes += std::min(member.bytes, bytes_of(graph_, graph_.values[source.index]));
    }
    return bytes;
  }

  // Small operands, such as broadcast ones, are read from a cache and do not count. Results and operands of the fused ops are alive at
  // once, one after the other in the stock engine; so their bytes are limited like those of the leaf gradients that a kernel makes.
  bool shares_a_read(const Open& open, const Member& member) const {
    const KernelLimits& limits = costs_.limits();
    const int64_t largest = std::max(open.largest_bytes, member.bytes);
    if (open.made_bytes + member.bytes > most_made_at_once(largest)) return false;
    if (is_large(largest) && open.group.group().loads.size() + member.operands.size() > limits.loads_of_large) return false;
    return std::any_of(member.operands.begin(), member.operands.end(), [&](const MemberOperand& operand) {
      const ValueId source = source_of(operand.value);
      const int64_t bytes = bytes_of(graph_, graph_.values[source.index]);
      return bytes >= member.bytes / 2 && costs_.is_read_worth_sharing(bytes) && open.group.loads(source);
    });
  }

  int64_t most_made_at_once(int64_t largest) const { return std::max(costs_.limits().kept_bytes, 4 * largest); }

  std::optional<OpenGroup::Place> place_in(const Open& open, const Member& member) const {
    const Group& group = open.group.group();
    const KernelLimits& limits = costs_.limits();
    if (group.members.size() >= limits.members || group.loads.size() + group.members.size() / 4 >= limits.loads) return std::nullopt;
    if (open.kept_bytes + member.bytes > most_made_at_once(std::max(open.largest_bytes, member.bytes))) return std::nullopt;
    if (open.waiting_bytes + bytes_made_since(open.group, member) > limits.waiting_bytes) return std::nullopt;
    return find_place(open.group, member);
  }

  bool join(uint32_t i) {
    const auto& member = member_of(i);
    if (member && member->kind == Member::Kind::Concat) return join_concat(i, *member);
    if (!member || !find_place(OpenGroup(graph_, views_, costs_), *member)) return false;

    for (const MemberOperand& operand : member->operands) {
      if (is_view(source_of(operand.value))) make_available(source_of(operand.value));
    }
    if (member->kind == Member::Kind::Product) {
      open_product(i, *member);
      return true;
    }
    merge_makers(*member);
    // Groups that compute its operands: a compatible one takes the member, others run first.
    uint32_t into = base::kNoIndex;
    std::optional<OpenGroup::Place> place;
    for (const MemberOperand& operand : member->operands) {
      const uint32_t g = open_group_of_[source_of(operand.value).index];
      if (g == base::kNoIndex || g == into) continue;
      if (!is_open(into) && (place = place_without_cycle(i, *member, g))) {
        into = g;
      } else if (!stays_open(g)) {
        close(g, is_open(into) ? "two groups meet" : "its reader has another domain, or it is full");
      }
    }
    if (!is_open(into)) std::tie(into, place) = other_group_for(i, *member);
    if (into == base::kNoIndex) {
      into = open_new();
      place = find_place(open_[into].group, *member);
    }
    add(i, into, *member, *place);
    return true;
  }

  // A group that reads the same large tensor saves a read. A group that has only the domain in common saves a call. If one such group needs
  // another, the other is taken: later ops of either can read its results.
  std::pair<uint32_t, std::optional<OpenGroup::Place>> other_group_for(uint32_t i, const Member& member) const {
    const bool is_call_bound = costs_.is_call_bound(hint_of_numel(*graph_.symbols, member.sizes));
    std::pair<uint32_t, std::optional<OpenGroup::Place>> best = {base::kNoIndex, std::nullopt};
    for (uint32_t g = static_cast<uint32_t>(open_.size()); g-- > 0;) {
      if (!open_[g].live || (best.second && !needs(best.first, g))) continue;
      if (!is_call_bound && !shares_a_read(open_[g], member)) continue;
      if (auto place = place_without_cycle(i, member, g)) best = {g, std::move(place)};
    }
    return best;
  }

  bool is_open(uint32_t g) const { return g != base::kNoIndex && open_[g].live; }

  uint32_t open_new() {
    open_.push_back({OpenGroup(graph_, views_, costs_)});
    ++open_count_;
    return static_cast<uint32_t>(open_.size() - 1);
  }

  // nullopt if the group cannot take the member, or would then need its own results, through other open groups.
  std::optional<OpenGroup::Place> place_without_cycle(uint32_t i, const Member& member, uint32_t g) const {
    auto place = place_in(open_[g], member);
    if (!place) return std::nullopt;
    const std::vector<uint32_t> read = open_groups_read_by(i);
    const bool needs_itself = std::any_of(read.begin(), read.end(), [&](uint32_t other) { return other != g && needs(other, g); });
    return needs_itself ? std::nullopt : std::move(place);
  }

  // When an op of another group reads it, such as the sum of a loss, a small group stays open for later ops.
  bool stays_open(uint32_t g) const {
    constexpr size_t kMost = 16;  // since each op may try all open groups
    return open_count_ < kMost && costs_.keeps_small_groups_open() &&
           costs_.is_call_bound(hint_of_numel(*graph_.symbols, open_[g].group.group().domain));
  }

  // Includes the groups of arguments that only ATen reads (Group::unread).
  std::vector<uint32_t> open_groups_read_by(uint32_t i) const {
    std::vector<uint32_t> groups;
    capture::for_each_use(graph_.instrs[i], [&](ValueId value) {
      if (!value.defined()) return;
      const uint32_t g = open_group_of_[source_of(value).index];
      if (is_open(g) && std::find(groups.begin(), groups.end(), g) == groups.end()) groups.push_back(g);
    });
    return groups;
  }

  // Whether the open group `reader` reads results of the open group `g`, also through other open groups.
  bool needs(uint32_t reader, uint32_t g) const {
    const std::vector<uint32_t>& reads = open_[reader].reads;
    return std::any_of(reads.begin(), reads.end(), [&](uint32_t read) { return read == g || (open_[read].live && needs(read, g)); });
  }

  // A product does not join a group; other ops join its group. Its operands must be computed before.
  void open_product(uint32_t i, const Member& member) {
    for (const ValueId factor : member.factors) make_available(factor);
    for (const MemberOperand& operand : member.operands) make_available(operand.value);
    const uint32_t into = open_new();
    add(i, into, member, *find_place(open_[into].group, member));
  }

  // If one group computes all parts, its kernel writes them to their places in the result. This does not raise peak memory: the stock
  // engine has the result and all parts alive together.
  bool join_concat(uint32_t i, const Member& member) {
    const auto group_of = [&](const MemberOperand& part) { return open_group_of_[source_of(part.value).index]; };
    if (std::any_of(member.operands.begin(), member.operands.end(),
                    [&](const MemberOperand& part) { return group_of(part) == base::kNoIndex; }))
      return false;
    merge_makers(member);
    const uint32_t into = group_of(member.operands[0]);
    const auto place = place_in(open_[into], member);
    if (!place) return false;
    add(i, into, member, *place);
    return true;
  }

  // Merges the groups that compute the member's operands, unless one needs the other. Everything that both keep alive existed when the
  // older one began, where the stock engine keeps it alive too: so peak memory is not raised, and the operands need no memory.
  void merge_makers(const Member& member) {
    uint32_t into = base::kNoIndex;
    for (const MemberOperand& operand : member.operands) {
      const uint32_t g = open_group_of_[source_of(operand.value).index];
      if (g == base::kNoIndex || g == into) continue;
      if (into == base::kNoIndex || !merge(into, g)) into = g;
    }
  }

  bool merge(uint32_t into, uint32_t from) {
    if (needs(into, from) || needs(from, into)) return false;
    Open merged{OpenGroup(graph_, views_, costs_), open_[into].sinks, open_[into].reads};
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
    if (is_large(merged.largest_bytes) && merged.group.group().loads.size() > costs_.limits().loads_of_large) return false;
    merged.sinks.insert(merged.sinks.end(), open_[from].sinks.begin(), open_[from].sinks.end());
    std::sort(merged.sinks.begin(), merged.sinks.end());
    merged.reads.insert(merged.reads.end(), open_[from].reads.begin(), open_[from].reads.end());
    open_[into] = std::move(merged);
    open_[from].live = false;
    --open_count_;
    for (Open& reader : open_) std::replace(reader.reads.begin(), reader.reads.end(), from, into);
    for (const uint32_t i : members) note_makers(i, into);
    return true;
  }

  void add(uint32_t i, uint32_t g, const Member& member, const OpenGroup::Place& place) {
    HC_CHECK(open_[g].live, "an op joins a kernel that has run");
    std::vector<uint32_t>& reads = open_[g].reads;
    for (const uint32_t read : open_groups_read_by(i)) {
      if (read != g && std::find(reads.begin(), reads.end(), read) == reads.end()) reads.push_back(read);
    }
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
    open.waiting_bytes += bytes_made_since(open.group, member);
    open.largest_bytes = std::max(open.largest_bytes, member.bytes);
    open.made_bytes += member.bytes;
    open.group.add(i, member, place);
    for (const ValueId output : graph_.instrs[i].outputs) {
      if (!output.defined() || !open.group.makes(output)) continue;
      const auto users = uses_.users_of(output);
      const bool kept = std::any_of(users.begin(), users.end(), [&](uint32_t user) { return capture::keeps(graph_.instrs[user]); });
      if (kept) open.kept_bytes += bytes_of(graph_, graph_.values[output.index]);
    }
  }

  // Delays the accumulation of an open group's result, possibly reshaped, until the group's kernel has run.
  bool delay(uint32_t i) {
    const ValueId value = graph_.instrs[i].inputs[0];
    if (!value.defined()) return false;
    const uint32_t g = open_group_of_[source_of(value).index];
    if (g == base::kNoIndex) return false;
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
    schedule_.items.push_back({false, i});
  }

  void make_available(ValueId value) {
    const uint32_t g = open_group_of_[source_of(value).index];
    if (g != base::kNoIndex) close(g, "its result is read by " + reader_name(value));
    const uint32_t maker = uses_.maker_of(value);
    const auto waiting = std::find(waiting_views_.begin(), waiting_views_.end(), maker);
    if (maker == base::kNoIndex || waiting == waiting_views_.end()) return;
    waiting_views_.erase(waiting);
    emit(maker);
  }

  // Values that are held at a boundary must exist as tensors.
  void emit_views_read_after(uint32_t i) {
    for (const uint32_t view : std::vector<uint32_t>(waiting_views_)) {
      const ValueId value = graph_.instrs[view].outputs[0];
      const auto users = uses_.users_of(value);
      if (!users.empty() && users.back() > i) make_available(value);
    }
  }

  std::string reader_name(ValueId value) const {
    for (const uint32_t user : uses_.users_of(value)) {
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
    --open_count_;
    // Its loads must have been computed.
    for (const ValueId load : std::vector<ValueId>(open_[g].group.group().loads)) make_available(load);
    for (const ValueId value : open_[g].group.unread()) make_available(value);
    Open& open = open_[g];
    const std::vector<uint32_t> members = open.group.group().members;
    for (const uint32_t member : members) {
      for (const ValueId made : graph_.instrs[member].outputs) {
        if (made.defined()) open_group_of_[made.index] = base::kNoIndex;
      }
    }
    if (!is_worth_a_kernel(open.group.group(), open.largest_bytes)) {
      for (const ValueId input : inputs_of(members[0])) make_available(input);
      schedule_.items.push_back({false, members[0]});
    } else {
      Group group = open.group.finish([&](ValueId made) { return is_read_elsewhere(made, members); });
      group.stopped = why;
      add_leaves(group, open.sinks);
      if (!group.body.stores.empty()) {
        schedule_.items.push_back({true, static_cast<uint32_t>(schedule_.groups.size())});
        schedule_.groups.push_back(std::move(group));
      }
    }
    for (const uint32_t sink : open_[g].sinks) schedule_.items.push_back({false, sink});
  }

  bool is_worth_a_kernel(const Group& group, int64_t bytes) {
    if (group.members.size() > 1 || group.body.product) return true;
    const Member& member = *member_of(group.members[0]);
    SingleOp op{.is_pointwise = member.kind == Member::Kind::Pointwise,
                .is_row_op = member.kind == Member::Kind::Rows,
                .is_reduction = member.kind == Member::Kind::Reduction,
                .bytes = bytes,
                .numel = hint_of_numel(*graph_.symbols, group.domain),
                .forward = member.forward,
                .type = graph_.values[member.operands[0].value.index].dtype,
                .row = 1};
    for (uint8_t axis = 0; axis < group.domain.size(); ++axis) {
      if (group.columns >> axis & 1) op.row *= graph_.symbols->hint(group.domain[axis]);
    }
    op.reads_padded =
        std::any_of(group.accesses.begin(), group.accesses.end(), [](const Access& access) { return !access.offsets.empty(); });
    return costs_.is_worth_it(op);
  }

  bool is_large(int64_t bytes) const { return bytes >= costs_.limits().large_bytes; }

  // Pulls in sums of the group's results that come later in the segment: they are small, and read the results while these are in a cache.
  void draw_in_sums(uint32_t g) {
    for (size_t m = 0; m < open_[g].group.group().members.size(); ++m) {
      for (const ValueId made : graph_.instrs[open_[g].group.group().members[m]].outputs) {
        if (made.defined()) draw_in_sums_of(made, g);
      }
    }
  }

  void draw_in_sums_of(ValueId value, uint32_t g) {
    for (const uint32_t user : uses_.users_of(value)) {
      if (segment_[user] != segment_[open_[g].group.group().members[0]]) continue;
      if (views_.is_read_through(user)) {
        draw_in_sums_of(graph_.instrs[user].outputs[0], g);
        continue;
      }
      if (user <= now_ || is_done_[user]) continue;
      const auto& member = member_of(user);
      if (!member || member->kind != Member::Kind::Reduction || is_view(source_of(member->operands[0].value))) continue;
      if (const auto place = place_in(open_[g], *member)) add(user, g, *member, *place);
    }
  }

  // Complex gradients are left to the Accumulate step: ATen's complex addition multiplies by 1, so its bits differ from a plain addition.
  void add_leaves(Group& group, const std::vector<uint32_t>& sinks) const {
    if (c10::isComplexType(group.body.compute)) return;
    for (uint32_t store = 0; store < group.stores.size(); ++store) {
      const ValueId value = group.stores[store];
      const bool is_sum = group.body.stores[store].extent != Extent::Element;
      std::vector<uint32_t> leaves, of_another_shape;
      for (const uint32_t sink : sinks) {
        if (!capture::keeps(graph_.instrs[sink])) continue;
        const ValueId gradient = graph_.instrs[sink].inputs[0];
        const Views::Source source = views_.source_of(gradient);
        if (gradient == value) leaves.push_back(sink);
        // A sum is always written to memory, so a leaf whose gradient is a reshaped sum can add it too.
        if (gradient != value && is_sum && source.value == value && source.offsets.empty()) of_another_shape.push_back(sink);
      }
      std::vector<uint32_t> inside = group.members;
      inside.insert(inside.end(), leaves.begin(), leaves.end());
      const bool is_taken = !is_read_elsewhere(value, inside);
      inside.insert(inside.end(), of_another_shape.begin(), of_another_shape.end());
      const bool is_of_leaves = !is_read_elsewhere(value, inside);
      for (const uint32_t leaf : leaves) group.leaves.push_back({store, leaf, is_taken && leaf == leaves.back(), is_of_leaves});
      for (const uint32_t leaf : of_another_shape) group.leaves.push_back({store, leaf, true, is_of_leaves});
      if (!is_sum && !group.body.product && bytes_of(graph_, graph_.values[value.index]) >= costs_.limits().leaf_bytes)
        group.body.stores[store].leaves = static_cast<uint32_t>(leaves.size());
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
    const uint32_t made_in = segment_[uses_.maker_of(value)];
    for (const uint32_t user : uses_.users_of(value)) {
      if (std::find(members.begin(), members.end(), user) != members.end()) continue;
      if (capture::waits(graph_.instrs[user]) && segment_[user] == made_in) continue;
      if (views_.is_read_through(user) && !is_read_elsewhere(graph_.instrs[user].outputs[0], members)) continue;
      return true;
    }
    return uses_.is_returned(value);
  }

  const Graph& graph_;
  const CostModel& costs_;
  const Views views_;
  const bool may_be_left_;
  const capture::ValueUses uses_;
  std::vector<uint32_t> open_group_of_, segment_;                  // by value, by instr
  std::unordered_map<uint32_t, std::optional<Member>> described_;  // by instr
  std::vector<bool> is_done_;                                      // by instr: in the schedule, or in a group
  std::vector<Open> open_;
  size_t open_count_ = 0;  // of them, those that are live
  std::vector<uint32_t> waiting_views_;
  uint32_t now_ = 0;
  Schedule schedule_;
};

}  // namespace

Schedule fuse(const Graph& graph, const CostModel& costs) { return Fuser(graph, costs).run(); }

}  // namespace hindcast::codegen
