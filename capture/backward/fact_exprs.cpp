#include "capture/backward/fact_exprs.h"

#include "capture/backward/copy_slices.h"

namespace hindcast::capture {

FactExprs::FactExprs(const TraceRequest& request, SymbolTable& symbols) : request_(request), symbols_(symbols) {
  if (!request.record) return;
  const DynamicFacts& dynamic = request.dynamic;
  for (size_t i = 0; i < dynamic.int_hints.size(); ++i) {
    const int64_t hint = dynamic.int_hints[i];
    ints_.push_back(dynamic.is_size[i] ? symbols.size_symbol(hint) : symbols.int_symbol(hint));
  }
  for (const double hint : dynamic.float_hints) floats_.push_back(symbols.float_symbol(hint));
  sort_facts();
}

void FactExprs::sort_facts() {
  const Collected& collected = request_.collected;
  nodes_.resize(collected.calls.size());
  for (uint32_t i = 0; i < collected.calls.size(); ++i) nodes_[i].inputs.resize(collected.calls[i].input_count);
  for (uint32_t f = 0; f < request_.origins.size(); ++f) {
    const FactOrigin& origin = request_.origins[f];
    NodeFacts& facts = nodes_[origin.call];
    switch (origin.kind) {
      case FactKind::InputSize:
        facts.inputs[origin.field].push_back(f);
        break;
      case FactKind::TensorMeta:
        facts.tensors.emplace_back();
        break;
      case FactKind::TensorSize:
        facts.tensors.back().push_back(f);
        break;
      case FactKind::SavedSize:
        (collected.calls[origin.call].writes_to_view() && origin.field < kPieceFields ? facts.piece : facts.sizes).push_back(f);
        break;
      case FactKind::FloatScalar:
      case FactKind::ExactScalar:
        facts.scalars.push_back(f);
        break;
      case FactKind::TensorStride:
        break;
    }
  }
}

const std::vector<uint32_t>* FactExprs::metadata(const NodeCall& call, uint32_t e) const {
  const EdgeTarget& edge = request_.collected.edges[call.first_edge + e];
  return edge.call == kNoCall ? nullptr : &nodes_[edge.call].inputs[edge.input_nr];
}

ExprId FactExprs::size(uint32_t fact) const {
  const auto& dynamic = request_.dynamic.collected;
  const int32_t symbol = dynamic.empty() ? kStaticFact : dynamic[fact];
  return symbol == kStaticFact ? symbols_.integer(collected(fact)) : ints_[symbol];
}

std::vector<ExprId> FactExprs::sizes(const std::vector<uint32_t>& facts) const {
  std::vector<ExprId> sizes;
  for (const uint32_t fact : facts) sizes.push_back(size(fact));
  return sizes;
}

std::optional<c10::SymFloat> FactExprs::symfloat(uint32_t fact) const {
  const int32_t symbol = request_.dynamic.collected[fact];
  if (symbol == kStaticFact) return std::nullopt;
  return symbols_.make_symfloat(floats_[symbol]);
}

bool FactExprs::forget_pin(uint32_t fact) const {
  const int32_t symbol = request_.dynamic.collected[fact];
  return symbol != kStaticFact && symbols_.forget_pin(floats_[symbol]);
}

std::vector<ExprId> FactExprs::resumed_sizes(const at::Tensor& tensor, uint32_t meta) const {
  const auto& dynamic = request_.dynamic.resumed;
  const bool may_be_dynamic = is_plain(tensor) && !dynamic.empty();
  std::vector<ExprId> sizes;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const int32_t symbol = may_be_dynamic ? dynamic[meta + 1 + d] : kStaticFact;
    sizes.push_back(symbol == kStaticFact ? symbols_.integer(tensor.size(d)) : ints_[symbol]);
  }
  return sizes;
}

}  // namespace hindcast::capture
