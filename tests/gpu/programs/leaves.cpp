// Gradients that kernels write to leaves: new ones, and ones that are added to existing gradients.

#include <ATen/ATen.h>

#include "tests/gpu/programs/device_program.h"

namespace hindcast::tests {
namespace {

// Three leaves that get one gradient, one that gets another, and one that gets a sum.
Tensors leaves_of(const Setting& setting, int64_t rows, int64_t columns) {
  return {setting.leaf({rows, columns}), setting.leaf({rows, columns}), setting.leaf({rows, columns}), setting.leaf({rows, columns}),
          setting.leaf({columns})};
}

void backward(const Setting& setting, const Tensors& leaves) {
  const at::Tensor sum = leaves[0] + leaves[1] + leaves[2] + leaves[4];
  const at::Tensor y = (sum * leaves[3]).tanh() + sum.sigmoid() * 2;
  y.backward(setting.constant(y.sizes()));
}

Tensors first(const Setting& setting, int64_t rows, int64_t columns) {
  const Tensors leaves = leaves_of(setting, rows, columns);
  backward(setting, leaves);
  return grads_of(leaves);
}

Tensors added(const Setting& setting, int64_t rows, int64_t columns) {
  const Tensors leaves = leaves_of(setting, rows, columns);
  for (int i = 0; i < 3; ++i) backward(setting, leaves);
  return grads_of(leaves);
}

Tensors added_to_some(const Setting& setting) {
  const Tensors leaves = leaves_of(setting, 9, 24);
  for (const size_t i : {0, 3}) leaves[i].mutable_grad() = setting.constant(leaves[i].sizes());
  backward(setting, leaves);
  return grads_of(leaves);
}

// Slices of one buffer, most of which are not aligned to 16 bytes.
Tensors added_to_a_buffer(const Setting& setting, int64_t rows, int64_t columns) {
  const Tensors leaves = leaves_of(setting, rows, columns);
  int64_t begin = 1;
  for (const at::Tensor& leaf : leaves) begin += leaf.numel() + 1;
  const at::Tensor buffer = setting.constant({begin});
  begin = 1;
  for (const at::Tensor& leaf : leaves) {
    leaf.mutable_grad() = buffer.narrow(0, begin, leaf.numel()).view(leaf.sizes());
    begin += leaf.numel() + 1;
  }
  for (int i = 0; i < 2; ++i) backward(setting, leaves);
  return {buffer};
}

// Norms write gradients of leaves too.
Tensors of_rows(const Setting& setting, int64_t rows, int64_t columns) {
  const Tensors leaves{setting.leaf({rows, columns}), setting.leaf({rows, columns}), setting.leaf({columns}), setting.leaf({columns})};
  for (int i = 0; i < 2; ++i) {
    const at::Tensor y = at::layer_norm(leaves[0] + leaves[1], {columns}, leaves[2], leaves[3]).tanh();
    y.backward(setting.constant(y.sizes()));
  }
  return grads_of(leaves);
}

Tensors that_overlap(const Setting& setting) {
  const Tensors leaves = leaves_of(setting, 9, 24);
  const at::Tensor buffer = setting.constant({9 * 24 + 5});
  for (const int64_t shift : {0, 5}) leaves[shift == 0 ? 0 : 1].mutable_grad() = buffer.narrow(0, shift, 9 * 24).view({9, 24});
  backward(setting, leaves);
  return {buffer};
}

}  // namespace

std::vector<DeviceProgram> leaf_programs() {
  struct Matrix {
    int64_t rows, columns;
  };
  constexpr int kOfDifferences = 512;
  const std::vector<double> ones(5, 1);  // per leaf: gradients of about 1, each rounded to the type, are added up
  std::vector<DeviceProgram> programs = {
      {"LeavesThatSomeHaveNone", added_to_some, kFloats},
      {"LeavesThatOverlap", that_overlap},
  };
  for (const auto& [rows, columns] : {Matrix{1, 1}, {9, 24}, {7, 33}, {600, 520}}) {
    const std::string of = "Of" + std::to_string(rows) + "By" + std::to_string(columns);
    const auto with = [rows = rows, columns = columns](auto program) {
      return [=](const Setting& setting) { return program(setting, rows, columns); };
    };
    const auto types = rows * columns > 10000 ? std::vector{at::kFloat} : kFloats;
    programs.push_back({"LeavesFirst" + of, with(first), types, {}, 64, 4, ones});
    programs.push_back({"LeavesAdded" + of, with(added), types, {}, 64, 4, ones});
    programs.push_back({"LeavesInABuffer" + of, with(added_to_a_buffer), types, {}, 64, 4, ones});
    if (columns > 1) programs.push_back({"LeavesOfRows" + of, with(of_rows), types, {}, kOfDifferences});
  }
  return programs;
}

}  // namespace hindcast::tests
