// Norms, softmax, losses and sums: reductions of rows, of segments, and over rows.

#include <ATen/ATen.h>

#include <cmath>

#include "tests/gpu/programs/device_program.h"

namespace hindcast::tests {
namespace {

// A norm's gradient is a difference of nearly equal terms.
constexpr int kOfDifferences = 128;

Tensors layer_norm(const Setting& setting, int64_t rows, int64_t columns) {
  const Tensors leaves{setting.leaf({rows, columns}), setting.leaf({columns}), setting.leaf({columns})};
  backward_of(at::layer_norm(leaves[0].tanh() * 2, {columns}, leaves[1], leaves[2]).sigmoid() * leaves[0], setting);
  return grads_of(leaves);
}

Tensors softmax(const Setting& setting, int64_t rows, int64_t columns) {
  const Tensors leaves{setting.leaf({rows, columns}), setting.leaf({columns})};
  backward_of(at::softmax(leaves[0] * 2 + leaves[1], -1) * leaves[0] + at::log_softmax(leaves[0] * 0.5, -1).tanh(), setting);
  return grads_of(leaves);
}

Tensors softmax_of_columns(const Setting& setting) {
  const Tensors leaves{setting.leaf({5, 33, 6})};
  backward_of(at::softmax(leaves[0] * 2, 1) * leaves[0], setting);
  return grads_of(leaves);
}

Tensors cross_entropy(const Setting& setting, int64_t rows, int64_t classes, at::Reduction::Reduction reduction) {
  const Tensors leaves{setting.leaf({rows, classes}), setting.leaf({classes})};
  at::Tensor labels = setting.integers(classes, {rows});
  if (rows > 2) labels[1] = -100;  // ignored
  const at::Tensor scores = leaves[0].tanh() * 3 + leaves[1], weight = setting.constant({classes}).abs() + 0.5;
  at::Tensor loss = at::cross_entropy_loss(scores, labels, {}, reduction);
  if (reduction == at::Reduction::None) loss = loss * setting.constant({rows});
  const at::Tensor weighted = at::nll_loss(at::log_softmax(scores * 0.5, 1), labels, weight, reduction);
  (loss.sum() + weighted.sum()).backward();
  return grads_of(leaves);
}

Tensors group_norm(const Setting& setting, const at::DimVector& sizes, int64_t groups) {
  const Tensors leaves{setting.leaf(sizes), setting.leaf({sizes[1]}), setting.leaf({sizes[1]})};
  backward_of(at::silu(at::group_norm(leaves[0] * 2, groups, leaves[1], leaves[2]) + leaves[0]), setting);
  return grads_of(leaves);
}

// A concat of results per row and results per element.
Tensors parts_of_rows(const Setting& setting) {
  const Tensors leaves{setting.leaf({9, 80})};
  const auto parts = (leaves[0] * 2).chunk(2, 1);
  backward_of(at::softmax(parts[0], -1) * parts[1].tanh(), setting);
  return grads_of(leaves);
}

// Images of many numbers, then of one.
Tensors group_norm_of_changing_sizes(const Setting& setting) {
  const int64_t length = std::vector<int64_t>{6, 7, 1, 32}[static_cast<size_t>(setting.step) % 4];
  return group_norm(setting, {3 + setting.step, 8, length}, 2);
}

Tensors batch_norm(const Setting& setting, const at::DimVector& sizes, bool training) {
  const int64_t channels = sizes[1];
  const Tensors leaves{setting.leaf(sizes), setting.leaf({channels}), setting.leaf({channels})};
  const at::Tensor mean = setting.constant({channels}), variance = setting.constant({channels}).abs() + 0.5;
  const at::Tensor y = at::batch_norm(leaves[0] * 2, leaves[1], leaves[2], mean, variance, training, 0.1, 1e-5, /*cudnn_enabled=*/false);
  backward_of(at::silu(y) + leaves[0], setting);
  return grads_of(leaves);
}

// A linear layer's bias, a scale per row, and one number for all.
Tensors sums(const Setting& setting, int64_t rows, int64_t columns) {
  const Tensors leaves{setting.leaf({rows, columns}), setting.leaf({columns}), setting.leaf({rows, 1}), setting.leaf({1})};
  backward_of((leaves[0] * leaves[2] + leaves[1]).tanh() * leaves[3], setting);
  return grads_of(leaves);
}

Tensors extremes(const Setting& setting) {
  const Tensors leaves{setting.leaf({17, 45}), setting.leaf({45})};
  const at::Tensor y = leaves[0] * 2 + leaves[1];
  backward_of((y - y.amax({1}, true)).exp() * y.amin({0}, true), setting);
  return grads_of(leaves);
}

Tensors root_mean_square_norm(const Setting& setting) {
  const Tensors leaves{setting.leaf({13, 96}), setting.leaf({96})};
  const at::Tensor x = leaves[0] * 2;
  backward_of(x * at::rsqrt(x.square().mean({-1}, true) + 1e-6) * leaves[1], setting);
  return grads_of(leaves);
}

}  // namespace

std::vector<DeviceProgram> row_programs() {
  const std::vector<at::ScalarType> types = {at::kFloat, at::kDouble};
  std::vector<DeviceProgram> programs = {
      {"SoftmaxOfColumns", softmax_of_columns, types, {}, kOfDifferences},
      {"GroupNormOfChangingSizes", group_norm_of_changing_sizes, types, {"segments_shared_each", "segments_shared"}, kOfDifferences},
      {"PartsOfRows", parts_of_rows, kFloats, {}, kOfDifferences},
      {"Extremes", extremes, types, {}, kOfDifferences},
      {"RootMeanSquareNorm", root_mean_square_norm, kFloats, {}, kOfDifferences},
  };
  struct Matrix {
    int64_t rows, columns;
  };
  // With and without whole vectors; a row, and a column, of one; rows that fit in registers, and others; more rows than a slice takes.
  for (const auto& [rows, columns] : {Matrix{8, 64}, {5, 33}, {1, 4096}, {33, 1}, {3, 5000}, {2, 20001}, {3000, 24}}) {
    const std::string of = "Of" + std::to_string(rows) + "By" + std::to_string(columns);
    const bool is_small = rows * columns < 10000;
    const auto& some = is_small ? kFloats : types;
    const auto with = [rows = rows, columns = columns](auto program) {
      return [=](const Setting& setting) { return program(setting, rows, columns); };
    };
    programs.push_back({"LayerNorm" + of, with(layer_norm), some, {}, 8 * kOfDifferences});
    programs.push_back({"Softmax" + of, with(softmax), some, {}, kOfDifferences});
    // The last result is the sum of all numbers, of both signs, which nearly cancel: its intermediate values are as large as a random walk.
    const double walk = std::sqrt(static_cast<double>(rows * columns));
    programs.push_back({"Sums" + of, with(sums), some, {}, 4 * kOfDifferences, 32, {0, 0, 0, walk}});
  }
  for (const auto& [rows, columns] : {Matrix{7, 10}, {1, 3}, {64, 32}, {9, 1000}}) {
    for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None}) {
      const auto run = [rows = rows, columns = columns, reduction](const Setting& setting) {
        return cross_entropy(setting, rows, columns, reduction);
      };
      programs.push_back({"CrossEntropyOf" + std::to_string(rows) + "By" + std::to_string(columns) + "Reduced" + std::to_string(reduction),
                          run,
                          types,
                          {},
                          kOfDifferences});
    }
  }
  struct Images {
    const char* name;
    at::DimVector sizes;
    int64_t groups;
    const char* kernel;
  };
  for (const Images& images : {Images{"Odd", {3, 8, 5, 5}, 4, "segments_shared_each"},
                               {"OneGroup", {2, 6, 4, 4}, 1, "segments_shared"},
                               {"AGroupEach", {2, 6, 4, 4}, 6, "segments_shared"},
                               {"OneImage", {1, 8, 6, 6}, 2, "segments_shared"},
                               {"OneChannel", {4, 1, 3, 7}, 1, "segments_shared_each"},
                               {"Lines", {2, 12, 7}, 3, "segments_shared_each"},
                               {"Wide", {2, 8, 40, 30}, 2, "segments_shared"},
                               {"Many", {300, 4, 3, 3}, 2, "segments_shared_each"}}) {
    const auto groups = [images](const Setting& setting) { return group_norm(setting, images.sizes, images.groups); };
    programs.push_back({std::string("GroupNorm") + images.name, groups, types, {images.kernel, "merge_slices"}, kOfDifferences});
    for (const bool training : {true, false}) {
      const auto batch = [images, training](const Setting& setting) { return batch_norm(setting, images.sizes, training); };
      programs.push_back({std::string("BatchNorm") + images.name + (training ? "" : "ThatRuns"), batch, types, {}, kOfDifferences});
    }
  }
  return programs;
}

}  // namespace hindcast::tests
