// Views, their copying forms, and the ops that write a view's gradient into zeros.

#include "capture/shape_rules/shape_call.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace hindcast::capture {
namespace {

/// The requested sizes, at most one of them -1: that one follows from the number of elements.
Sizes with_inferred(const ShapeCall& call, Sizes wanted, ExprId numel) {
  std::optional<size_t> inferred;
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (call.symbols.hint(wanted[d]) >= 0) continue;
    require(call.symbols.pin(wanted[d]) == -1 && !inferred);
    inferred = d;
  }
  if (inferred) {
    wanted[*inferred] = call.constant(1);
    wanted[*inferred] = call.symbols.div(numel, call.product(wanted));
  }
  call.same(call.product(wanted), numel);
  return wanted;
}

Outputs reshape(const ShapeCall& call) { return {with_inferred(call, call.integers(call.likes), call.product(call.tensor("self")))}; }

Outputs flatten(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  if (self.empty()) return {{call.constant(1)}};
  const size_t start = call.dim("start_dim", self.size()), end = call.dim("end_dim", self.size());
  require(start <= end);
  Sizes sizes(self.begin(), self.begin() + start);
  sizes.push_back(call.product(Sizes(self.begin() + start, self.begin() + end + 1)));
  sizes.insert(sizes.end(), self.begin() + end + 1, self.end());
  return {sizes};
}

Outputs unflatten(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  const size_t dim = call.dim("dim", self.size());
  const Sizes parts = with_inferred(call, call.integers("sizes"), self.at(dim));
  Sizes sizes(self.begin(), self.begin() + dim);
  sizes.insert(sizes.end(), parts.begin(), parts.end());
  sizes.insert(sizes.end(), self.begin() + dim + 1, self.end());
  return {sizes};
}

Outputs permute(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  Sizes sizes;
  for (const int64_t dim : call.numbers("dims")) sizes.push_back(self.at(wrap_dim(dim, self.size())));
  require(sizes.size() == self.size());
  return {sizes};
}

Sizes swapped(Sizes sizes, size_t a, size_t b) {
  if (!sizes.empty()) std::swap(sizes.at(a), sizes.at(b));
  return sizes;
}

Outputs transpose(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  return {swapped(self, call.dim("dim0", self.size()), call.dim("dim1", self.size()))};
}

Outputs t(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  return {self.size() < 2 ? self : swapped(self, 0, 1)};
}

Outputs adjoint(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  return {self.size() < 2 ? self : swapped(self, self.size() - 1, self.size() - 2)};
}

Outputs movedim(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  const auto from = call.numbers("source"), to = call.numbers("destination");
  require(from.size() == to.size());
  Sizes sizes(self.size());
  std::vector<bool> taken(self.size()), placed(self.size());
  for (size_t i = 0; i < from.size() && !self.empty(); ++i) {
    const size_t source = wrap_dim(from[i], self.size()), target = wrap_dim(to[i], self.size());
    sizes[target] = self[source];
    taken[source] = placed[target] = true;
  }
  for (size_t source = 0, target = 0; source < self.size(); ++source) {
    if (taken[source]) continue;
    while (placed[target]) ++target;
    sizes[target++] = self[source];
  }
  return {sizes};
}

Outputs expand(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  Sizes wanted = call.integers("size");
  require(wanted.size() >= self.size());
  const size_t lead = wanted.size() - self.size();
  for (size_t d = 0; d < self.size(); ++d) {
    ExprId& size = wanted[lead + d];
    if (call.symbols.hint(size) < 0) {
      require(call.symbols.pin(size) == -1);
      size = self[d];
    } else if (call.symbols.hint(size) == call.symbols.hint(self[d])) {
      size = call.same(size, self[d]);
    } else {
      require(call.is_one(self[d]));
    }
  }
  return {wanted};
}

Outputs squeeze(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  std::vector<bool> chosen(std::max<size_t>(self.size(), 1), !call.has("dim"));
  if (call.has("dim")) {
    for (const int64_t dim : call.numbers("dim")) chosen[wrap_dim(dim, self.size())] = true;
  }
  Sizes sizes;
  for (size_t d = 0; d < self.size(); ++d) {
    if (!chosen[d] || !call.is_one(self[d])) sizes.push_back(self[d]);
  }
  return {sizes};
}

Outputs unsqueeze(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(call.dim("dim", sizes.size() + 1)), call.constant(1));
  return {sizes};
}

/// How many elements start:end:step of `size` selects, clipped as LibTorch clips.
ExprId sliced(const ShapeCall& call, ExprId size) {
  SymbolTable& s = call.symbols;
  const ExprId zero = call.constant(0), step = call.integer("step");
  const auto from_the_end = [&](ExprId bound) { return s.less(bound, zero) ? s.add(bound, size) : bound; };

  ExprId start = call.has("start") ? from_the_end(call.integer("start")) : zero;
  if (s.less(start, zero))
    start = zero;
  else if (s.less(size, start))
    start = size;

  ExprId end = size;
  if (call.has("end") && s.constant(call.integer("end")) != std::numeric_limits<int64_t>::max()) {
    end = from_the_end(call.integer("end"));
    if (s.less(end, start))
      end = start;
    else if (s.less(size, end))
      end = size;
  }
  require(s.less(zero, step));
  return s.div(s.add(s.sub(end, start), s.sub(step, call.constant(1))), step);
}

Outputs slice(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  ExprId& size = sizes.at(call.dim("dim", sizes.size()));
  size = sliced(call, size);
  return {sizes};
}

Outputs narrow(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  sizes.at(call.dim("dim", sizes.size())) = call.integer("length");
  return {sizes};
}

Outputs select(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(call.dim("dim", sizes.size())));
  return {sizes};
}

Outputs unbind(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  const size_t dim = call.dim("dim", sizes.size());
  const int64_t count = call.symbols.pin(sizes.at(dim));
  sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(dim));
  return Outputs(static_cast<size_t>(count), sizes);
}

/// Pieces of size `piece`, the last one the remainder. The number of pieces is part of the trace.
Outputs in_pieces(const ShapeCall& call, size_t dim, ExprId piece) {
  SymbolTable& s = call.symbols;
  const Sizes& self = call.tensor("self");
  const ExprId size = self.at(dim), one = call.constant(1);
  if (s.hint(piece) == 0) {  // only a size of 0 can be split so, into itself
    s.pin(piece);
    return {self};
  }
  const ExprId rounded_up = s.div(s.sub(s.add(size, piece), one), piece);
  const int64_t count = std::max<int64_t>(s.pin(s.max(rounded_up, one)), 1);
  Outputs outputs(static_cast<size_t>(count), self);
  for (Sizes& sizes : outputs) sizes[dim] = piece;
  outputs.back()[dim] = s.sub(size, s.mul(call.constant(count - 1), piece));
  return outputs;
}

Outputs split(const ShapeCall& call) { return in_pieces(call, call.dim("dim", call.tensor("self").size()), call.integer("split_size")); }

Outputs chunk(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  const size_t dim = call.dim("dim", self.size());
  SymbolTable& s = call.symbols;
  const ExprId chunks = call.integer("chunks"), one = call.constant(1);
  const ExprId piece = s.div(s.sub(s.add(self.at(dim), chunks), one), chunks);
  require(s.hint(piece) != 0);  // an empty dimension gives `chunks` empty pieces
  return in_pieces(call, dim, piece);
}

Outputs split_with_sizes(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  const size_t dim = call.dim("dim", self.size());
  ExprId sum = call.constant(0);
  Outputs outputs;
  for (const ExprId piece : call.integers("split_sizes")) {
    outputs.emplace_back(self).at(dim) = piece;
    sum = call.symbols.add(sum, piece);
  }
  call.same(sum, self.at(dim));
  return outputs;
}

Outputs diagonal(const ShapeCall& call) {
  SymbolTable& s = call.symbols;
  const Sizes& self = call.tensor("self");
  const size_t dim1 = call.dim("dim1", self.size()), dim2 = call.dim("dim2", self.size());
  require(dim1 != dim2 && self.size() >= 2);
  const int64_t offset = call.number("offset");
  const ExprId rows = s.add(self[dim1], call.constant(std::min<int64_t>(offset, 0)));
  const ExprId columns = s.sub(self[dim2], call.constant(std::max<int64_t>(offset, 0)));
  Sizes sizes;
  for (size_t d = 0; d < self.size(); ++d) {
    if (d != dim1 && d != dim2) sizes.push_back(self[d]);
  }
  sizes.push_back(s.max(s.min(rows, columns), call.constant(0)));
  return {sizes};
}

Outputs diag_embed(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  require(!self.empty());
  const size_t rank = self.size() + 1;
  const size_t dim1 = call.dim("dim1", rank), dim2 = call.dim("dim2", rank);
  const ExprId side = call.symbols.add(self.back(), call.constant(std::abs(call.number("offset"))));
  Sizes sizes(self.begin(), self.end() - 1);
  for (const size_t dim : {std::min(dim1, dim2), std::max(dim1, dim2)}) {
    sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(dim), side);
  }
  return {sizes};
}

Outputs unfold(const ShapeCall& call) {
  SymbolTable& s = call.symbols;
  Sizes sizes = call.tensor("self");
  const size_t dim = call.dim("dimension", sizes.size());
  const ExprId window = call.integer("size");
  if (!sizes.empty()) {
    sizes[dim] = s.add(s.div(s.sub(sizes[dim], window), call.integer("step")), call.constant(1));
  }
  sizes.push_back(window);
  return {sizes};
}

Outputs view_as_real(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  sizes.push_back(call.constant(2));
  return {sizes};
}

Outputs view_as_complex(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  require(!sizes.empty());
  call.same(sizes.back(), call.constant(2));
  sizes.pop_back();
  return {sizes};
}

constexpr RuleRow kViewRules[] = {
    {"view _unsafe_view _reshape_alias _reshape_copy", reshape, "size"},
    {"reshape", reshape, "shape"},
    {"as_strided resize_", sizes_given, "size"},
    {"slice_backward select_backward unfold_backward diagonal_backward", sizes_given, "input_sizes"},
    {"flatten.using_ints", flatten},
    {"unflatten.int", unflatten},
    {"permute", permute},
    {"transpose.int transpose_", transpose},
    {"t", t},
    {"adjoint", adjoint},
    {"movedim.int movedim.intlist", movedim},
    {"expand", expand},
    {"squeeze squeeze.dim squeeze.dims", squeeze},
    {"unsqueeze", unsqueeze},
    {"slice.Tensor", slice},
    {"narrow", narrow},
    {"select.int", select},
    {"unbind.int", unbind},
    {"split.Tensor unsafe_split.Tensor", split},
    {"split_with_sizes unsafe_split_with_sizes", split_with_sizes},
    {"chunk", chunk},
    {"diagonal", diagonal},
    {"diag_embed", diag_embed},
    {"unfold", unfold},
    {"view_as_real", view_as_real},
    {"view_as_complex", view_as_complex},
};

}  // namespace

std::span<const RuleRow> view_rules() { return kViewRules; }

}  // namespace hindcast::capture
