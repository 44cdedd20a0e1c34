#pragma once
// The correct kernels of tests/cuda_emulator/kernels.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace hindcast::tests::cuda {

struct KernelFile {
  std::string name;
  std::vector<std::string> kernels;
};

inline const std::vector<KernelFile> kKernelFiles = {
    {"pointwise", {"by_fours", "by_grid", "flip_bytes"}},
    {"reductions", {"sums_of_rows", "sums_of_columns_parts", "sums_of_columns", "sum_by_atomics"}},
    {"exchange", {"turn_around", "neighbours", "of_lanes"}},
    {"functors", {"functors_float", "functors_double"}},
};

inline std::string text_of(const std::string& file) {
  std::ifstream in(std::filesystem::path(HINDCAST_SOURCE_DIR) / "tests/cuda_emulator/kernels" / (file + ".cu"));
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace hindcast::tests::cuda
