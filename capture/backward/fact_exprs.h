#pragma once
// Facts as expressions of the graph: a number if the fact is static, a symbol if it is dynamic; and which facts describe which part of a
// node.

#include "capture/backward/trace.h"

namespace hindcast::capture {

/// Facts of one node, sorted by what they describe; numbers are indices into the facts.
struct NodeFacts {
  std::vector<std::vector<uint32_t>> inputs;   // sizes in each input's metadata
  std::vector<std::vector<uint32_t>> tensors;  // sizes of each collected tensor
  std::vector<uint32_t> sizes, scalars;
  std::vector<uint32_t> piece;  // in a write to a view: the geometry of base and view
};

class FactExprs {
 public:
  /// Makes the symbols that `request.dynamic` asks for.
  FactExprs(const TraceRequest& request, SymbolTable& symbols);

  bool dynamic() const { return !request_.dynamic.int_hints.empty() || !request_.dynamic.float_hints.empty(); }

  const NodeFacts& of(uint32_t call) const { return nodes_[call]; }
  /// Facts of the sizes in the input metadata that edge `e` of `call` leads to; nullptr if it leads nowhere.
  const std::vector<uint32_t>* metadata(const NodeCall& call, uint32_t e) const;

  /// Expression of a collected fact that is an integer.
  ExprId size(uint32_t fact) const;
  std::vector<ExprId> sizes(const std::vector<uint32_t>& facts) const;
  c10::SymInt symint(uint32_t fact) const { return symbols_.make_symint(size(fact)); }
  /// Symbol of a collected fact that is a scalar; nullopt if it is static.
  std::optional<c10::SymFloat> symfloat(uint32_t fact) const;
  /// SymbolTable::forget_pin() for a scalar; false if it is static.
  bool forget_pin(uint32_t fact) const;
  int64_t collected(uint32_t fact) const { return request_.collected.facts[fact]; }

  /// Sizes of a tensor that flows in at the start of the trace. `meta`: the number of its first fact.
  std::vector<ExprId> resumed_sizes(const at::Tensor& tensor, uint32_t meta) const;

 private:
  void sort_facts();

  const TraceRequest& request_;
  SymbolTable& symbols_;
  std::vector<NodeFacts> nodes_;  // per call
  std::vector<ExprId> ints_, floats_;
};

}  // namespace hindcast::capture
