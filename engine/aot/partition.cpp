#include "codegen/partition/explain.h"
#include "codegen/partition/min_cut.h"
#include "codegen/partition/standard.h"
#include "hindcast/aot_options.h"

namespace hindcast::partition {

std::shared_ptr<const Partitioned> standard(const Joint& joint, const PartitionOptions&) {
  return std::make_shared<const Partitioned>(codegen::standard(joint));
}

std::shared_ptr<const Partitioned> min_cut(const Joint& joint, const PartitionOptions& options) {
  return std::make_shared<const Partitioned>(codegen::min_cut(joint, {.memory_budget = options.memory_budget, .lasting = options.lasting}));
}

std::string explain(const Joint& joint, const Partitioned& parts) { return codegen::explain(joint, parts); }

}  // namespace hindcast::partition
