#include "codegen/cpu/source.h"

#include "base/format.h"
#include "codegen/cpu/cost_model.h"
#include "codegen/cpu/joined_rows.h"
#include "codegen/fuse/functors.h"
#include "codegen/fuse/row_passes.h"
#include "codegen/kernel/body_struct.h"
#include "codegen/kernel/body_text.h"
#include "codegen/kernel/leaf_requests.h"

#include <algorithm>

namespace hindcast::codegen::cpu {
namespace {

using base::format;

// Whether the op is recomputed in a later pass rather than kept.
bool is_cheap(const BodyOp& op) { return codegen::is_cheap(op.function); }

std::string head_of_text(std::initializer_list<std::string_view> skeletons) {
  std::string text;
  for (const std::string_view skeleton : skeletons) text += format("#include \"codegen/device/skeletons/cpu/{}.h\"\n", skeleton);
  return text + "using namespace hindcast::device;\nusing namespace hindcast::device::cpu;\n\n";
}

std::string entry(std::string_view name, std::string_view arguments, const std::string& call) {
  return format("extern \"C\" void {}(const {}& arguments) {{ {}; }}\n", name, arguments, call);
}

std::string dense_source(const Body& body) {
  std::string text =
      head_of_text({body.product ? "product" : "dense"}) + body_struct(body, "Body", {.costs = cost_model(), .by_blocks = true});
  text += entry("dense", "LoopArguments", "run_dense<Body>(arguments)");
  if (body.product) text += entry("product", "ProductArguments", "run_product<Body>(arguments)");
  if (has_leaves(body)) text += entry("leaves", "LeavesArguments", "run_leaves<Body>(arguments)");
  return text;
}

bool goes_by_segments(const Body& body) {
  return std::any_of(body.loads.begin(), body.loads.end(),
                     [](const BodyLoad& load) { return load.pattern == AccessPattern::PerSegment; }) ||
         std::any_of(body.ops.begin(), body.ops.end(),
                     [](const BodyOp& op) { return op.reduces(Reduction::Over::Segment) || op.reduces(Reduction::Over::Segments); }) ||
         std::any_of(body.stores.begin(), body.stores.end(), [](const BodyStore& store) { return store.extent == Extent::Channels; });
}

std::string rows_source(const Body& body) {
  const bool has_short_rows = has_part_for_short_rows(body);
  std::string text = head_of_text({has_short_rows ? "short_rows" : "rows"}) + body_struct(body, "Body",
                                                                                          {.costs = cost_model(),
                                                                                           .is_cheap = is_cheap,
                                                                                           .by_segments = goes_by_segments(body),
                                                                                           .by_blocks = true,
                                                                                           .has_short_rows = has_short_rows});
  text += entry("rows", "RowLoopArguments",
                has_short_rows ? format("run_rows_of_any_length<Body, {}>(arguments)", kShortRow - 1) : "run_rows<Body, false>(arguments)");
  if (has_leaves(body)) text += entry("leaves", "RowLoopArguments", "run_rows<Body, true>(arguments)");
  return text;
}

}  // namespace

std::string source_of(const Body& body) { return body.by_rows ? rows_source(body) : dense_source(body); }

std::string product_blocks_source(at::ScalarType type) {
  return format(
      "#include \"codegen/device/product_blocks.h\"\nusing namespace hindcast::device;\n\n"
      "extern \"C\" const ProductBlocks<{}> blocks = kProductBlocks<{}>;\n",
      type_name(type), type_name(type));
}

bool has_part_for_short_rows(const Body& body) {
  const auto is_of_segments = [](const BodyOp& op) {
    return op.kind == BodyOp::Kind::Reduction && op.reduction.over != Reduction::Over::Row;
  };
  const auto is_per_segment = [](const BodyLoad& load) { return load.pattern == AccessPattern::PerSegment; };
  const auto is_for_segments = [](const BodyStore& store) { return store.extent == Extent::Segment || store.extent == Extent::Channels; };
  return body.has_short_rows && !c10::isComplexType(body.compute) && !JoinedRows::may_be(body) && !has_moments_over_rows(body) &&
         std::none_of(body.ops.begin(), body.ops.end(), is_of_segments) &&
         std::none_of(body.loads.begin(), body.loads.end(), is_per_segment) &&
         std::none_of(body.stores.begin(), body.stores.end(), is_for_segments);
}

size_t row_scratch(const Body& body) { return body.by_rows ? RowPasses(body, is_cheap).slots() : 0; }

bool is_written_last(const Body& body, size_t store) {
  const RowPasses passes(body, is_cheap);
  return body.stores[store].extent == Extent::Element && passes.pass_of(body.stores[store].value) + 1 == passes.count();
}

}  // namespace hindcast::codegen::cpu
