#include "engine/aot/input_facts.h"

#include "capture/backward/trace.h"

namespace hindcast::engine {

using capture::ExprId;
using capture::FactKind;
using capture::Facts;
using capture::kStaticFact;

InputFacts::InputFacts(const std::vector<at::Tensor>& inputs, const std::vector<bool>& is_static, bool with_kinds) {
  std::vector<capture::FactOrigin> origins;
  for (size_t i = 0; i < inputs.size(); ++i) {
    first.push_back(static_cast<uint32_t>(row.size()));
    capture::append_tensor_facts(inputs[i], row, with_kinds ? &origins : nullptr);
    // Guards on being a leaf tensor, since an in-place write to one that requires grad is an error. This bit of the meta word is unused.
    constexpr int64_t kLeaf = int64_t{1} << 61;
    if (inputs[i].defined() && inputs[i].requires_grad() && inputs[i].is_leaf()) row[first.back()] |= kLeaf;
    for (; kinds.size() < origins.size();) {
      const FactKind kind = origins[kinds.size()].kind;
      kinds.push_back(i < is_static.size() && is_static[i] && kind == FactKind::TensorSize ? FactKind::TensorStride : kind);
    }
  }
}

capture::FunctionTrace::SizesOf sizes_of_inputs(const Facts& row, const std::vector<uint32_t>& first, const DynamicRow& dynamic) {
  return [row, first, dynamic, made = std::vector<ExprId>()](size_t input, capture::SymbolTable& symbols) mutable {
    for (size_t s = made.size(); s < dynamic.int_hints.size(); ++s) {
      made.push_back(dynamic.is_size[s] ? symbols.size_symbol(dynamic.int_hints[s]) : symbols.int_symbol(dynamic.int_hints[s]));
      if (dynamic.is_steady[s]) symbols.set_steady(made.back());
    }
    const size_t place = first[input];
    const auto rank = static_cast<size_t>((row[place] >> 1) & 0x7f);
    std::vector<ExprId> sizes;
    for (size_t d = 0; d < rank; ++d) {
      const int32_t symbol = dynamic.symbols.empty() ? kStaticFact : dynamic.symbols[place + 1 + d];
      sizes.push_back(symbol == kStaticFact ? symbols.integer(row[place + 1 + d]) : made[symbol]);
    }
    return sizes;
  };
}

}  // namespace hindcast::engine
