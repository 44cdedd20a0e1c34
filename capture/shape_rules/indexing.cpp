// Joining, repeating, and selecting by index tensors.

#include "capture/shape_rules/shape_call.h"

#include <algorithm>

namespace hindcast::capture {
namespace {

// LibTorch skips empty 1-D tensors among tensors of another rank.
Outputs cat(const ShapeCall& call) {
  SymbolTable& s = call.symbols;
  const auto& tensors = call.tensors("tensors");
  const auto is_skippable = [&](const Sizes& sizes) { return sizes.size() == 1 && s.hint(sizes[0]) == 0; };
  const auto first = std::find_if_not(tensors.begin(), tensors.end(), is_skippable);
  if (first == tensors.end()) {
    for (const Sizes& sizes : tensors) s.pin(sizes[0]);
    return {{call.constant(0)}};
  }
  Sizes result = *first;
  const size_t dim = call.dim("dim", result.size());
  ExprId total = call.constant(0);
  for (const Sizes& sizes : tensors) {
    if (sizes.size() != result.size()) {
      require(is_skippable(sizes));
      s.pin(sizes[0]);
      continue;
    }
    total = s.add(total, sizes.at(dim));
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (d != dim) result[d] = call.same(result[d], sizes[d]);
    }
  }
  result.at(dim) = total;
  return {result};
}

Outputs stack(const ShapeCall& call) {
  const auto& tensors = call.tensors("tensors");
  require(!tensors.empty());
  Sizes sizes = tensors[0];
  for (const Sizes& other : tensors) sizes = call.same(sizes, other);
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(call.dim("dim", sizes.size() + 1)),
               call.constant(static_cast<int64_t>(tensors.size())));
  return {sizes};
}

Outputs repeat(const ShapeCall& call) {
  Sizes self = call.tensor("self"), times = call.integers(call.likes);
  const ExprId one = call.constant(1);
  if (call.likes == "dims" && times.size() < self.size()) times.insert(times.begin(), self.size() - times.size(), one);
  require(times.size() >= self.size());
  self.insert(self.begin(), times.size() - self.size(), one);
  for (size_t d = 0; d < self.size(); ++d) self[d] = call.symbols.mul(self[d], times[d]);
  return {self};
}

Outputs rot90(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  const auto dims = call.numbers("dims");
  require(dims.size() == 2);
  if (call.number("k") % 2 != 0) std::swap(sizes.at(wrap_dim(dims[0], sizes.size())), sizes.at(wrap_dim(dims[1], sizes.size())));
  return {sizes};
}

Outputs index_select(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  const Sizes& index = call.tensor("index");
  if (!sizes.empty()) sizes.at(call.dim("dim", sizes.size())) = index.empty() ? call.constant(1) : index[0];
  return {sizes};
}

// The index tensors' common sizes replace the indexed dimensions, or come first if those are not adjacent.
Outputs index(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  const auto& indices = call.indices("indices");
  require(indices.size() <= self.size());
  std::optional<Sizes> common;
  std::vector<size_t> indexed;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    require(at::isIntegralType(indices[d]->dtype, false) && indices[d]->dtype != at::kByte);  // masks: sizes depend on data
    common = common ? call.broadcast(*common, indices[d]->sizes) : indices[d]->sizes;
    indexed.push_back(d);
  }
  require(common.has_value());
  const bool together = indexed.back() - indexed.front() + 1 == indexed.size();
  const size_t place = together ? indexed.front() : 0;
  Sizes sizes;
  for (size_t d = 0; d < self.size(); ++d) {
    if (std::find(indexed.begin(), indexed.end(), d) == indexed.end()) sizes.push_back(self[d]);
  }
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(place), common->begin(), common->end());
  return {sizes};
}

Outputs embedding(const ShapeCall& call) {
  const Sizes& weight = call.tensor("weight");
  require(weight.size() == 2);
  Sizes sizes = call.tensor("indices");
  sizes.push_back(weight[1]);
  return {sizes};
}

Outputs embedding_weight_gradient(const ShapeCall& call) {
  const Sizes& grad = call.tensor(call.likes);
  require(!grad.empty());
  return {{call.integer("num_weights"), grad.back()}};
}

Outputs repeat_interleave(const ShapeCall& call) {
  require(call.has("output_size"));
  return {{call.integer("output_size")}};
}

constexpr RuleRow kIndexingRules[] = {
    {"cat concat concatenate", cat},
    {"stack _stack", stack},
    {"repeat", repeat, "repeats"},
    {"tile", repeat, "dims"},
    {"rot90", rot90},
    {"index_select", index_select},
    {"gather take", same_as, "index"},
    {"index.Tensor _unsafe_index.Tensor _unsafe_masked_index", index},
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_weight_gradient, "grad_output"},
    {"_embedding_bag_dense_backward", embedding_weight_gradient, "grad"},
    {"_embedding_bag_per_sample_weights_backward", same_as, "indices"},
    {"masked_scatter_backward", sizes_given, "sizes"},
    {"repeat_interleave.Tensor", repeat_interleave},
};

}  // namespace

std::span<const RuleRow> indexing_rules() { return kIndexingRules; }

}  // namespace hindcast::capture
