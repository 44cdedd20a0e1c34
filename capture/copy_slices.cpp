#include "capture/copy_slices.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/functions/tensor.h>

namespace hindcast::capture {

using torch::autograd::variable_list;

const std::shared_ptr<torch::autograd::Node>& written_by(const torch::autograd::Node& node) {
  return static_cast<const torch::autograd::CopySlices&>(node).fn;
}

variable_list on_piece(const PieceOfBase& piece, const at::Tensor& gradient, const std::vector<bool>& needed,
                       const std::function<variable_list(variable_list)>& write) {
  if (!gradient.defined()) return variable_list(needed.size());
  at::Tensor whole = gradient.new_empty_strided_symint(piece.base.sizes, piece.base.strides);
  whole.copy_(gradient);
  const at::Tensor slice = whole.as_strided_symint(piece.view.sizes, piece.view.strides, piece.view.offset - piece.base.offset);
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
