#include "capture/backward/copy_slices.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <optional>

namespace hindcast::capture {

using torch::autograd::variable_list;

namespace {

struct Cut {
  int64_t dim;
  c10::SymInt start, end, step;
  bool keeps_dim;
};

// The view as one cut per dimension of its base, which says more than strides do; nullopt for another kind of view.
std::optional<std::vector<Cut>> cuts_of(const PieceOfBase& piece) {
  const auto& [base, view] = piece;
  std::vector<Cut> cuts;
  c10::SymInt rest = view.offset - base.offset;
  size_t next = 0;  // dimension of the view
  for (size_t i = 0; i < base.sizes.size(); ++i) {
    const auto& size = base.sizes[i];
    const c10::SymInt stride = size == 1 ? c10::SymInt(1) : base.strides[i];
    if (stride == 0) return std::nullopt;
    Cut cut{static_cast<int64_t>(next), size == 1 ? c10::SymInt(0) : rest / stride, 0, 1, false};
    rest = rest - cut.start * stride;
    if (next < view.sizes.size() && (size == 1 ? view.sizes[next] == 1 : view.strides[next] % stride == 0)) {
      if (size != 1) cut.step = view.strides[next] / stride;
      cut.end = cut.start + (view.sizes[next] - 1) * cut.step + 1;
      cut.keeps_dim = view.sizes[next] > 0 && cut.step > 0 && cut.end <= size;
    }
    if (cut.start >= size) return std::nullopt;
    if (cut.keeps_dim) ++next;
    if (!cut.keeps_dim || view.sizes[next - 1] != size) cuts.push_back(cut);
  }
  if (next != view.sizes.size() || rest != 0) return std::nullopt;
  return cuts;
}

at::Tensor view_of(const PieceOfBase& piece, at::Tensor whole) {
  const auto cuts = cuts_of(piece);
  if (!cuts) return whole.as_strided_symint(piece.view.sizes, piece.view.strides, piece.view.offset - piece.base.offset);
  for (const Cut& cut : *cuts)
    whole = cut.keeps_dim ? whole.slice_symint(cut.dim, cut.start, cut.end, cut.step) : whole.select_symint(cut.dim, cut.start);
  return whole;
}

}  // namespace

const NodePtr& written_by(const torch::autograd::Node& node) { return static_cast<const torch::autograd::CopySlices&>(node).fn; }

PieceOfBase read_piece(const torch::autograd::Node& node, c10::function_ref<c10::SymInt()> next) {
  const auto& slices = static_cast<const torch::autograd::CopySlices&>(node);
  const auto take = [&](int64_t count) {
    std::vector<c10::SymInt> list;
    for (; count > 0; --count) list.push_back(next());
    return list;
  };
  const auto geometry = [&](int64_t rank) -> PieceOfBase::Geometry {
    auto sizes = take(rank), strides = take(rank);
    return {std::move(sizes), std::move(strides), next()};
  };
  auto base = geometry(slices.base.dim());
  return {std::move(base), geometry(slices.view.dim())};
}

variable_list on_piece(const PieceOfBase& piece, const at::Tensor& gradient, const std::vector<bool>& needed,
                       const std::function<variable_list(variable_list)>& write) {
  if (!gradient.defined()) return variable_list(needed.size());
  at::Tensor whole = at::empty_strided_symint(piece.base.sizes, piece.base.strides, gradient.options());
  whole.copy_(gradient);
  const at::Tensor slice = view_of(piece, whole);
  variable_list results = write({slice.clone(at::MemoryFormat::Contiguous)});
  results.resize(needed.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!needed[i]) results[i] = at::Tensor();
  }
  if (results[0].defined()) {
    slice.copy_(results[0]);
    results[0] = std::move(whole);
  }
  return results;
}

}  // namespace hindcast::capture
