#include "engine/aot/names.h"

#include "codegen/partition/explain.h"

#include <algorithm>
#include <cctype>

namespace hindcast::engine {

capture::ValueNames name_values(const capture::Joint& joint) {
  return std::make_shared<const std::vector<std::string>>(codegen::names_of(joint));
}

capture::Joint with_tensor_names(capture::Joint joint, const AotOptions& options, const std::vector<at::Tensor>& lifted) {
  if (!options.tensor_names || lifted.empty()) return joint;
  std::vector<std::string> names = options.tensor_names(lifted);
  for (std::string& name : names) {
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    if (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0) name.insert(0, 1, '_');
  }
  joint.primal_names.resize(joint.primals - lifted.size());
  joint.primal_names.insert(joint.primal_names.end(), names.begin(), names.end());
  return joint;
}

std::shared_ptr<const capture::Graph> with_names(const std::shared_ptr<const capture::Graph>& graph, capture::ValueNames names) {
  auto copy = std::make_shared<capture::Graph>(*graph);
  copy->names = std::move(names);
  return copy;
}

}  // namespace hindcast::engine
