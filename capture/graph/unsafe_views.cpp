#include "capture/graph/unsafe_views.h"

#include "base/check.h"

#include <ATen/ops/narrow.h>

namespace hindcast::capture {
namespace {

enum class Kind : uint8_t { Other, Split, SplitWithSizes, View };

const c10::OperatorName kSplit("aten::unsafe_split", "Tensor"), kSplitWithSizes("aten::unsafe_split_with_sizes", ""),
    kView("aten::_unsafe_view", "");

Kind kind_of(const ViewStep& step) {
  const c10::OperatorName& name = step.op.operator_name();
  if (name == kSplit) return Kind::Split;
  if (name == kSplitWithSizes) return Kind::SplitWithSizes;
  return name == kView ? Kind::View : Kind::Other;
}

std::vector<c10::SymInt> sizes_of(const c10::IValue& list) {
  if (!list.isIntList()) return list.toSymIntVector();
  const std::vector<int64_t> sizes = list.toIntVector();
  return {sizes.begin(), sizes.end()};
}

}  // namespace

bool is_view_for_autograd(const ViewStep& step) {
  const auto& returned = step.op.schema().returns();
  return !returned.empty() && returned.front().alias_info() != nullptr;
}

bool has_tracked_view(const ViewStep& step) { return kind_of(step) != Kind::Other; }

at::Tensor tracked_view(const ViewStep& step, const at::Tensor& of, const std::vector<c10::IValue>& args) {
  switch (kind_of(step)) {
    case Kind::Other:
      break;
    case Kind::View:
      return of.view_symint(sizes_of(args.at(1)));
    case Kind::Split: {
      const int64_t dim = args.at(2).toInt();
      const c10::SymInt size = args.at(1).toSymInt(), start = size * step.output;
      return at::narrow_symint(of, dim, start, (of.sym_size(dim) - start).min(size));
    }
    case Kind::SplitWithSizes: {
      const std::vector<c10::SymInt> sizes = sizes_of(args.at(1));
      c10::SymInt start = 0;
      for (uint32_t i = 0; i < step.output; ++i) start += sizes.at(i);
      return at::narrow_symint(of, args.at(2).toInt(), start, sizes.at(step.output));
    }
  }
  HC_CHECK(false, "{} has no view that autograd tracks", c10::toString(step.op.operator_name()));
  return {};
}

}  // namespace hindcast::capture
