#include "engine/aot/names.h"

#include "codegen/partition/explain.h"

namespace hindcast::engine {

capture::ValueNames name_values(const capture::Joint& joint) {
  return std::make_shared<const std::vector<std::string>>(codegen::names_of(joint));
}

std::shared_ptr<const capture::Graph> with_names(const std::shared_ptr<const capture::Graph>& graph, capture::ValueNames names) {
  auto copy = std::make_shared<capture::Graph>(*graph);
  copy->names = std::move(names);
  return copy;
}

}  // namespace hindcast::engine
