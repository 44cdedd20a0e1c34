#include "codegen/partition/min_cut.h"

#include "base/format.h"
#include "codegen/partition/bans.h"
#include "codegen/partition/flow_network.h"
#include "codegen/partition/split.h"
#include "codegen/partition/standard.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::Joint;
using capture::Partitioned;
using capture::ValueId;
using capture::ValueIds;

namespace {

constexpr double kMostCapacity = 0x1p61;
constexpr int32_t kFarthest = 100;
constexpr double kByDistance = 1.1;

/// The parameters of one cut: which instrs may be recomputed, and how values are priced.
struct Rung {
  enum class Prices : uint8_t {
    Default,
    DefaultWithoutPrimals,  // assumes that all primals stay alive
    Bytes,                  // bytes of values that the forward computes
  };
  Prices prices = Prices::Bytes;
  size_t allowed = 0;  // how many of the banned instrs may be recomputed, cheapest per byte first
};

class Cutter {
 public:
  Cutter(const JointUses& uses, const MinCutOptions& options)
      : uses_(uses), graph_(uses.graph()), is_lasting_(uses.joint().primals), bans_(uses, options.ban) {
    for (const uint32_t primal : options.lasting) {
      if (primal < is_lasting_.size()) is_lasting_[primal] = true;
    }
    is_needed_ = uses.needed_for(uses.joint().gradient_values(), true, [](ValueId) { return false; });
    sort_banned_instrs();
    find_scales();
  }

  size_t bans() const { return banned_instrs_; }
  std::vector<ValueId> cut(const Rung& rung) const;

 private:
  void sort_banned_instrs();
  void find_scales();
  bool is_banned(uint32_t i, const Rung& rung) const;
  std::optional<int64_t> price_of(ValueId value, const Rung& rung) const;

  const JointUses& uses_;
  const Graph& graph_;
  std::vector<bool> is_lasting_;  // by primal
  const Bans bans_;
  std::vector<bool> is_needed_;  // by instr: needed by the backward if nothing is saved
  std::vector<size_t> places_;   // by instr: its 1-based rank among the banned instrs that could be allowed
  size_t banned_instrs_ = 0;
  double default_scale_ = 1;
  int64_t byte_scale_ = 1;
};

void Cutter::sort_banned_instrs() {
  std::vector<std::pair<double, uint32_t>> costs;
  for (uint32_t i = 0; i < is_needed_.size(); ++i) {
    const Ban ban = bans_.of(i);
    if (!is_needed_[i] || uses_.stays(i) || ban == Ban::None || is_for_ever(ban)) continue;
    double bytes = 1;
    for (const ValueId value : graph_.instrs[i].outputs) bytes += value.defined() ? static_cast<double>(uses_.bytes_of(value)) : 0;
    costs.emplace_back(cost_of(uses_, i, bans_.class_of(i)) / bytes, i);
  }
  std::sort(costs.begin(), costs.end());
  places_.resize(is_needed_.size());
  for (const auto& [cost, i] : costs) places_[i] = ++banned_instrs_;
}

// Prices are integers, and their sum must not overflow.
void Cutter::find_scales() {
  double bytes = 1;
  for (uint32_t value = 0; value < graph_.values.size(); ++value) bytes += static_cast<double>(uses_.bytes_of({value}));
  default_scale_ = std::min(1024.0, kMostCapacity / (bytes * 3 * std::pow(kByDistance, kFarthest)));
  const double most = kFarthest * static_cast<double>(graph_.values.size() + 1);  // bound on the sum of all distances
  byte_scale_ = most * (bytes + 1) < kMostCapacity ? static_cast<int64_t>(most) : 1;
}

bool Cutter::is_banned(uint32_t i, const Rung& rung) const {
  if (uses_.stays(i) || is_for_ever(bans_.of(i))) return true;
  return bans_.of(i) != Ban::None && places_[i] > rung.allowed;
}

// nullopt for a view: its base is saved instead, and the view is recomputed.
std::optional<int64_t> Cutter::price_of(ValueId value, const Rung& rung) const {
  if (uses_.viewed_by(value).defined()) return std::nullopt;
  const bool is_default = rung.prices == Rung::Prices::Default;
  if (uses_.is_primal(value) && (!is_default || is_lasting_[uses_.input_number(value)])) return 0;
  const int64_t bytes = uses_.bytes_of(value);
  const int32_t distance = std::clamp(bans_.distance_of(value), 1, kFarthest);
  const bool is_extra = bans_.distance_of(value) == 0;  // the forward would compute it only for the backward
  if (rung.prices == Rung::Prices::Bytes) {
    // Of equal bytes, prefers values near the backward, which save it the most work.
    return byte_scale_ == 1 ? bytes : bytes * byte_scale_ + (is_extra ? kFarthest : distance);
  }
  const double price = static_cast<double>(bytes) * std::pow(kByDistance, distance) * (bans_.is_materialised(value) ? 1 : 2);
  return static_cast<int64_t>(price * default_scale_ * (is_extra ? 1.01 : 1));
}

// The two vertices of each value's edge. An instr with one output is the output's near vertex; one with several has its own vertex.
struct Edges {
  explicit Edges(size_t values) : near(values), far(values) {}
  FlowNetwork network;
  std::vector<FlowNetwork::Vertex> near, far;  // by value; 0 if it has no edge

  void add(ValueId value, std::optional<int64_t> price) {
    near[value.index] = network.add_vertex();
    far[value.index] = network.add_vertex();
    if (price) {
      network.add_edge(near[value.index], far[value.index], *price);
    } else {
      network.add_tie(near[value.index], far[value.index]);
    }
  }
  void add_use(ValueId value, FlowNetwork::Vertex reader) {
    if (value.defined() && far[value.index] != 0) network.add_tie(far[value.index], reader);
  }
  FlowNetwork::Vertex maker_of(const ValueIds& outputs) {
    if (outputs.size() == 1) return near[outputs[0].index];
    const FlowNetwork::Vertex maker = network.add_vertex();
    for (const ValueId value : outputs) {
      if (value.defined()) network.add_tie(maker, near[value.index]);
    }
    return maker;
  }
};

std::vector<ValueId> Cutter::cut(const Rung& rung) const {
  Edges edges(graph_.values.size());
  for (const ValueId value : uses_.joint().primal_values()) {
    if (!value.defined()) continue;
    edges.add(value, price_of(value, rung));
    edges.network.add_tie(FlowNetwork::kSource, edges.near[value.index]);
  }
  for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
    if (!is_needed_[i]) continue;
    const Instr& instr = graph_.instrs[i];
    FlowNetwork::Vertex reader = FlowNetwork::kSink;
    if (!uses_.runs_in_backward(i)) {
      for (const ValueId value : instr.outputs) {
        if (value.defined()) edges.add(value, price_of(value, rung));
      }
      reader = edges.maker_of(instr.outputs);
      if (is_banned(i, rung)) edges.network.add_tie(FlowNetwork::kSource, reader);
    }
    capture::for_each_use(instr, [&](ValueId value) { edges.add_use(value, reader); });
  }
  for (const ValueId value : uses_.joint().gradient_values()) edges.add_use(value, FlowNetwork::kSink);

  const std::vector<bool> is_in_backward = edges.network.sink_side();
  std::vector<ValueId> saved;
  for (uint32_t value = 0; value < graph_.values.size(); ++value) {
    if (edges.far[value] != 0 && is_in_backward[edges.far[value]] && !is_in_backward[edges.near[value]]) saved.push_back({value});
  }
  return saved;
}

// Finds the cut for a memory budget: the default cut, or for a smaller budget the first rung that saves no more than that. Each rung saves
// at most as many bytes as the one before, since it bans fewer instrs.
class Ladder {
 public:
  Ladder(const JointUses& uses, const MinCutOptions& options) : uses_(uses), options_(options), cutter_(uses, options) {}

  Partitioned run() const {
    const double limit = bytes_of(standard(uses_));
    Partitioned best = parts({.prices = Rung::Prices::Default});
    if (bytes_of(best) > limit) best = parts({.prices = Rung::Prices::DefaultWithoutPrimals});
    if (bytes_of(best) > limit) best = parts({});
    if (options_.memory_budget == 1) return best;
    Partitioned found = parts({.allowed = cutter_.bans()});
    const double most = bytes_of(best), fewest = bytes_of(found);
    if (most <= fewest) return best;
    const double budget = fewest + options_.memory_budget * (most - fewest);
    size_t first = 0, last = cutter_.bans();  // binary search; `found` belongs to `last`
    while (first < last) {
      const size_t middle = (first + last) / 2;
      Partitioned next = parts({.allowed = middle});
      if (bytes_of(next) <= budget) {
        last = middle;
        found = std::move(next);
      } else {
        first = middle + 1;
      }
    }
    return found;
  }

 private:
  Partitioned parts(const Rung& rung) const { return split(uses_, cutter_.cut(rung)); }
  double bytes_of(const Partitioned& parts) const { return static_cast<double>(saved_bytes(uses_, parts.saved)); }

  const JointUses& uses_;
  const MinCutOptions& options_;
  const Cutter cutter_;
};

}  // namespace

Partitioned min_cut(const Joint& joint, const MinCutOptions& options) {
  if (!(options.memory_budget >= 0 && options.memory_budget <= 1)) {
    throw std::invalid_argument(
        base::format("hindcast: the memory budget of a partition is {}; expected a number from 0 to 1", options.memory_budget));
  }
  const JointUses uses(joint);
  return Ladder(uses, options).run();
}

}  // namespace hindcast::codegen
