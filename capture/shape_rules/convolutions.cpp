// Convolution, pooling, padding, resizing: the last dimensions follow from sliding windows. A gradient has the sizes of what it is the
// gradient of.

#include "capture/shape_rules/shape_call.h"

#include <algorithm>

namespace hindcast::capture {
namespace {

/// How many windows of `kernel` fit into `size` padded on both sides.
ExprId windows(const ShapeCall& call, ExprId size, ExprId kernel, ExprId stride, ExprId padding, ExprId dilation) {
  SymbolTable& s = call.symbols;
  const ExprId one = call.constant(1);
  const ExprId reach = s.mul(dilation, s.sub(kernel, one));
  const ExprId room = s.sub(s.sub(s.add(size, s.mul(call.constant(2), padding)), reach), one);
  return s.add(s.div(room, stride), one);
}

/// The same, rounded up: the last window may hang over, unless it would start in the padding.
ExprId windows_rounded_up(const ShapeCall& call, ExprId size, ExprId kernel, ExprId stride, ExprId padding, ExprId dilation) {
  SymbolTable& s = call.symbols;
  const ExprId slack = s.sub(stride, call.constant(1));
  const ExprId starts = s.div(s.add(s.add(size, padding), slack), stride);
  return s.min(windows(call, s.add(size, slack), kernel, stride, padding, dilation), starts);
}

Outputs convolution(const ShapeCall& call) {
  SymbolTable& s = call.symbols;
  const Sizes& input = call.tensor(call.likes);
  const Sizes& weight = call.tensor("weight");
  require(weight.size() >= 3 && (input.size() == weight.size() || input.size() + 1 == weight.size()));
  const size_t spatial = weight.size() - 2, first = input.size() - spatial;
  const Sizes one(spatial, call.constant(1)), zero(spatial, call.constant(0));
  const auto given = [&](std::string_view name, const Sizes& otherwise) {
    return call.has(name) ? call.integers(name, spatial) : otherwise;
  };
  const Sizes stride = given("stride", one), padding = given("padding", zero), dilation = given("dilation", one);
  const Sizes output_padding = given("output_padding", zero);
  const bool transposed = call.has("transposed") ? call.flag("transposed") : call.has("output_padding");

  Sizes sizes = input;
  if (transposed)
    sizes[first - 1] = call.has("groups") ? s.mul(weight[1], call.integer("groups")) : weight[1];
  else
    sizes[first - 1] = weight[0];
  for (size_t d = 0; d < spatial; ++d) {
    const ExprId kernel = weight[d + 2];
    if (transposed) {
      const ExprId strided = s.mul(s.sub(input[first + d], one[d]), stride[d]);
      const ExprId reach = s.mul(dilation[d], s.sub(kernel, one[d]));
      const ExprId cut = s.mul(call.constant(2), padding[d]);
      sizes[first + d] = s.add(s.add(s.sub(s.add(strided, reach), cut), output_padding[d]), one[d]);
    } else {
      sizes[first + d] = windows(call, input[first + d], kernel, stride[d], padding[d], dilation[d]);
    }
  }
  return {sizes};
}

Outputs convolution_backward(const ShapeCall& call) {
  require(call.outputs() == 3);
  const Sizes& weight = call.tensor("weight");
  require(weight.size() >= 2);
  const bool transposed = call.has("transposed") && call.flag("transposed");
  const ExprId bias = transposed ? call.symbols.mul(weight[1], call.integer("groups")) : weight[0];
  return {call.unless_undefined(0, call.tensor(call.likes)), call.unless_undefined(1, weight), call.unless_undefined(2, {bias})};
}

Outputs pool(const ShapeCall& call) {
  const size_t spatial = static_cast<size_t>(call.likes[0] - '0');
  Sizes sizes = call.tensor("self");
  require(sizes.size() >= spatial);
  const Sizes kernel = call.integers("kernel_size", spatial);
  const bool has_stride = call.has("stride") && !call.integers("stride").empty();
  const Sizes stride = has_stride ? call.integers("stride", spatial) : kernel;
  const Sizes padding = call.integers("padding", spatial);
  const Sizes dilation = call.has("dilation") ? call.integers("dilation", spatial) : Sizes(spatial, call.constant(1));
  const auto count = call.flag("ceil_mode") ? windows_rounded_up : windows;
  for (size_t d = 0; d < spatial; ++d) {
    ExprId& size = sizes[sizes.size() - spatial + d];
    size = count(call, size, kernel[d], stride[d], padding[d], dilation[d]);
  }
  return Outputs(call.outputs(), sizes);
}

/// The `output_size` argument gives the last dimensions.
Outputs resized(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  const Sizes wanted = call.integers("output_size", static_cast<size_t>(call.likes[0] - '0'));
  require(sizes.size() > wanted.size());
  std::copy(wanted.begin(), wanted.end(), sizes.end() - static_cast<ptrdiff_t>(wanted.size()));
  return Outputs(call.outputs(), sizes);
}

/// Two numbers per dimension, the last dimension first. Negative ones crop.
Outputs pad(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  const Sizes amounts = call.integers(call.likes);
  require(amounts.size() % 2 == 0 && amounts.size() / 2 <= sizes.size());
  for (size_t i = 0; i < amounts.size(); ++i) {
    ExprId& size = sizes[sizes.size() - 1 - i / 2];
    size = call.symbols.add(size, amounts[i]);
  }
  return {sizes};
}

/// Windows of an image as columns: [N, C, H, W] -> [N, C*kh*kw, windows].
Outputs im2col(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  require(self.size() >= 3);
  const Sizes kernel = call.integers("kernel_size", 2), stride = call.integers("stride", 2);
  const Sizes padding = call.integers("padding", 2), dilation = call.integers("dilation", 2);
  ExprId count = call.constant(1);
  for (size_t d = 0; d < 2; ++d) {
    count = call.symbols.mul(count, windows(call, self[self.size() - 2 + d], kernel[d], stride[d], padding[d], dilation[d]));
  }
  Sizes sizes(self.begin(), self.end() - 3);
  sizes.insert(sizes.end(), {call.symbols.mul(*(self.end() - 3), call.product(kernel)), count});
  return {sizes};
}

Outputs col2im(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  require(self.size() >= 2);
  const Sizes kernel = call.integers("kernel_size", 2), image = call.integers("output_size", 2);
  Sizes sizes(self.begin(), self.end() - 2);
  sizes.insert(sizes.end(), {call.symbols.div(*(self.end() - 2), call.product(kernel)), image[0], image[1]});
  return {sizes};
}

Outputs pixel_shuffle(const ShapeCall& call) {
  SymbolTable& s = call.symbols;
  Sizes sizes = call.tensor("self");
  require(sizes.size() >= 3);
  const bool up = call.likes == "upscale_factor";
  const ExprId factor = call.integer(call.likes);
  const auto image = sizes.end() - 2;
  image[-1] = up ? s.div(image[-1], s.mul(factor, factor)) : s.mul(image[-1], s.mul(factor, factor));
  for (auto size = image; size != sizes.end(); ++size) *size = up ? s.mul(*size, factor) : s.div(*size, factor);
  return {sizes};
}

/// Channels of the input at the positions of the grid.
Outputs grid_sample(const ShapeCall& call) {
  Sizes sizes = call.tensor(call.likes);
  const Sizes& grid = call.tensor("grid");
  require(sizes.size() >= 3 && grid.size() == sizes.size());
  sizes[0] = call.same(sizes[0], grid[0]);
  std::copy(grid.begin() + 1, grid.end() - 1, sizes.begin() + 2);
  return {sizes};
}

/// One position in the image per output pixel: [N, C, H, W] needs [N, H, W, 2].
Outputs affine_grid(const ShapeCall& call) {
  Sizes sizes = call.integers("size");
  require(sizes.size() >= 4);
  sizes.erase(sizes.begin() + 1);
  sizes.push_back(call.constant(static_cast<int64_t>(sizes.size()) - 1));
  return {sizes};
}

constexpr RuleRow kConvolutionRules[] = {
    {"convolution convolution_overrideable _convolution", convolution, "input"},
    {"mkldnn_convolution cudnn_convolution cudnn_convolution_transpose cudnn_convolution_relu "
     "cudnn_convolution_add_relu _slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d "
     "_conv_depthwise2d conv_depthwise3d slow_conv_transpose2d slow_conv_transpose3d",
     convolution, "self"},
    {"convolution_backward convolution_backward_overrideable", convolution_backward, "input"},
    {"_slow_conv2d_backward.output_mask", convolution_backward, "self"},
    {"max_pool2d_with_indices avg_pool2d mkldnn_max_pool2d max_pool2d", pool, "2"},
    {"max_pool3d_with_indices avg_pool3d mkldnn_max_pool3d max_pool3d", pool, "3"},
    {"max_pool1d max_pool1d_with_indices", pool, "1"},
    {"max_pool2d_with_indices_backward max_pool3d_with_indices_backward max_pool2d_backward avg_pool2d_backward "
     "avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward "
     "adaptive_max_pool2d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward "
     "fractional_max_pool3d_backward reflection_pad1d_backward reflection_pad2d_backward "
     "reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward",
     same_as, "self"},
    {"upsample_nearest1d _upsample_nearest_exact1d upsample_linear1d", resized, "1"},
    {"upsample_nearest2d _upsample_nearest_exact2d upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa "
     "_upsample_bicubic2d_aa _adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d fractional_max_pool2d "
     "max_unpool2d",
     resized, "2"},
    {"upsample_nearest3d _upsample_nearest_exact3d upsample_trilinear3d _adaptive_avg_pool3d adaptive_avg_pool3d "
     "adaptive_max_pool3d fractional_max_pool3d max_unpool3d",
     resized, "3"},
    {"upsample_nearest1d_backward _upsample_nearest_exact1d_backward upsample_linear1d_backward "
     "upsample_nearest2d_backward _upsample_nearest_exact2d_backward upsample_bilinear2d_backward "
     "upsample_bicubic2d_backward _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward "
     "upsample_nearest3d_backward _upsample_nearest_exact3d_backward upsample_trilinear3d_backward",
     sizes_given, "input_size"},
    {"constant_pad_nd", pad, "pad"},
    {"reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d", pad, "padding"},
    {"im2col", im2col},
    {"col2im", col2im},
    {"pixel_shuffle", pixel_shuffle, "upscale_factor"},
    {"pixel_unshuffle", pixel_shuffle, "downscale_factor"},
    {"grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback", grid_sample, "input"},
    {"cudnn_grid_sampler", grid_sample, "self"},
    {"grid_sampler_2d_backward grid_sampler_3d_backward", same_as, "input grid"},
    {"cudnn_grid_sampler_backward", same_as, "self grid"},
    {"affine_grid_generator", affine_grid},
};

}  // namespace

std::span<const RuleRow> convolution_rules() { return kConvolutionRules; }

}  // namespace hindcast::capture
