#include "engine/diagnosis/explain_miss.h"

#include "base/format.h"
#include "capture/backward/collect.h"

#include <algorithm>
#include <bit>
#include <string>

namespace hindcast::engine {
namespace {

using cache::Miss;
using capture::FactKind;
using capture::FactOrigin;

bool is_size(FactKind kind) { return kind == FactKind::TensorSize || kind == FactKind::InputSize || kind == FactKind::SavedSize; }

std::string scalar_text(FactKind kind, int64_t bits) {
  return kind == FactKind::FloatScalar ? base::format("{}", std::bit_cast<double>(bits)) : std::to_string(bits);
}

// The miss for one changed fact.
Miss miss_of(const capture::Collected& collected, const FactOrigin& origin, int64_t before, int64_t after, uint32_t size_index,
             bool is_dynamic) {
  Miss miss;
  const bool is_root = origin.call == capture::kRootGradient;
  miss.node = is_root ? "torch::autograd::GraphRoot" : collected.calls[origin.call].node->name();
  miss.node_call = is_root ? 0 : origin.call + 1;
  const std::string field = capture::field_name(collected, origin);
  switch (origin.kind) {
    case FactKind::TensorSize:
    case FactKind::InputSize:
    case FactKind::SavedSize:
      miss.kind = Miss::Kind::ChangedShapes;
      miss.size_index = size_index;
      miss.made_dynamic = is_dynamic;
      miss.before = std::to_string(before);
      miss.after = std::to_string(after);
      break;
    case FactKind::FloatScalar:
    case FactKind::ExactScalar:
      miss.kind = Miss::Kind::ChangedScalar;
      miss.what = field;
      miss.lifted = is_dynamic;
      miss.before = scalar_text(origin.kind, before);
      miss.after = scalar_text(origin.kind, after);
      break;
    case FactKind::TensorMeta:
      miss.kind = Miss::Kind::ChangedTensor;
      miss.what = field + " " + capture::describe_change(origin.kind, before, after);
      break;
    case FactKind::TensorStride:
      miss.kind = Miss::Kind::ChangedTensor;
      miss.what = field + " strides";
      miss.before = std::to_string(before);
      miss.after = std::to_string(after);
      break;
  }
  return miss;
}

}  // namespace

std::vector<Miss> explain_miss(const capture::Collected& collected, const std::vector<FactOrigin>& origins, const capture::Facts& before,
                               const capture::Facts& now, c10::function_ref<bool(size_t place)> becomes_symbol) {
  std::vector<Miss> misses;
  uint32_t size_index = 0;
  const size_t common = std::min(before.size(), now.size());
  for (size_t i = 0; i < common; ++i) {
    if (before[i] != now[i]) {
      misses.push_back(miss_of(collected, origins[i], before[i], now[i], size_index, becomes_symbol(i)));
      if (origins[i].kind == FactKind::TensorMeta) break;  // the facts that follow belong to another layout
    }
    size_index += is_size(origins[i].kind) ? 1 : 0;
  }
  if (misses.empty()) {
    misses.push_back({.kind = Miss::Kind::FailedGuard, .node = "torch::autograd::GraphRoot", .what = "the relations between sizes"});
  }
  return misses;
}

}  // namespace hindcast::engine
