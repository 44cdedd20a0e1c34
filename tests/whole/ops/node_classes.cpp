#include "tests/whole/ops/node_classes.h"

#include <fstream>
#include <stdexcept>

#ifndef HINDCAST_TORCH_INCLUDE_DIR
#error "HINDCAST_TORCH_INCLUDE_DIR: define it as LibTorch's include folder"
#endif

namespace hindcast::tests::ops {

std::set<std::string> all_node_classes() {
  const std::string path = std::string(HINDCAST_TORCH_INCLUDE_DIR) + "/torch/csrc/autograd/generated/Functions.h";
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + ": cannot be opened; is this LibTorch's include folder?");
  const std::string before = "struct TORCH_API ";
  std::set<std::string> names;
  for (std::string line; std::getline(in, line);) {
    const size_t after_name = line.find(" : public ");
    if (line.rfind(before, 0) == 0 && after_name != std::string::npos) names.insert(line.substr(before.size(), after_name - before.size()));
  }
  return names;
}

}  // namespace hindcast::tests::ops
