#include "codegen/fuse/shapes.h"

#include <algorithm>

namespace hindcast::codegen {
namespace {

using capture::SymbolTable;

std::vector<uint8_t> longer_than_one(const SymbolTable& symbols, const Sizes& sizes) {
  std::vector<uint8_t> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (symbols.constant(sizes[i]) != 1) dims.push_back(static_cast<uint8_t>(i));
  }
  return dims;
}

// Takes the innermost of `open` until the product of their sizes is `size`; returns none if the sizes are not constant or no product
// matches.
std::vector<uint8_t> take_product(const SymbolTable& symbols, const Sizes& sizes, std::vector<uint8_t>& open, int64_t size) {
  std::vector<uint8_t> taken;
  int64_t product = 1;
  for (size_t i = open.size(); i-- > 0 && product < size;) {
    const auto constant = symbols.constant(sizes[open[i]]);
    if (!constant || *constant == 0) return {};
    product *= *constant;
    taken.insert(taken.begin(), open[i]);
  }
  if (product != size) return {};
  open.resize(open.size() - taken.size());
  return taken;
}

}  // namespace

std::optional<std::vector<Block>> match(const SymbolTable& symbols, const Sizes& dims, const Sizes& axes, bool same_numel) {
  std::vector<uint8_t> open_dims = longer_than_one(symbols, dims), open_axes = longer_than_one(symbols, axes);
  std::vector<Block> blocks;
  while (!open_dims.empty() && !open_axes.empty()) {
    const auto dim = dims[open_dims.back()], axis = axes[open_axes.back()];
    if (dim == axis) {
      blocks.push_back({{open_dims.back()}, {open_axes.back()}});
      open_dims.pop_back();
      open_axes.pop_back();
      continue;
    }
    const auto dim_size = symbols.constant(dim), axis_size = symbols.constant(axis);
    Block block;
    if (dim_size && axis_size && *dim_size > *axis_size) {
      block.axes = take_product(symbols, axes, open_axes, *dim_size);
      if (!block.axes.empty()) block.dims = {open_dims.back()}, open_dims.pop_back();
    } else if (dim_size && axis_size && *dim_size < *axis_size) {
      block.dims = take_product(symbols, dims, open_dims, *axis_size);
      if (!block.dims.empty()) block.axes = {open_axes.back()}, open_axes.pop_back();
    }
    if (block.dims.empty()) {
      if (!same_numel || (open_dims.size() > 1 && open_axes.size() > 1)) return std::nullopt;
      block.dims.swap(open_dims);
      block.axes.swap(open_axes);
    }
    blocks.push_back(std::move(block));
  }
  if (!open_dims.empty() || !open_axes.empty()) return std::nullopt;
  std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

int64_t hint_of_numel(const SymbolTable& symbols, const Sizes& sizes) {
  int64_t numel = 1;
  for (const auto size : sizes) numel *= symbols.hint(size);
  return numel;
}

}  // namespace hindcast::codegen
