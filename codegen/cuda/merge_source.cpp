#include "codegen/cuda/merge_source.h"

#include "base/format.h"
#include "codegen/cuda/reduction_text.h"
#include "codegen/kernel/body_text.h"

#include <optional>

namespace hindcast::codegen::cuda {

using base::format;
using Kind = Reduction::Kind;

namespace {

std::string partial(const Body& body, size_t store, const std::string& slice) {
  return format("(({}*)(arguments.partials[{}] + {} * arguments.partial_bytes[{}]))[at]", type_name(body.compute), store, slice, store);
}

// Each thread processes every kTileRows-th slice.
std::string loop_over_slices(size_t store, const std::string& step) {
  return format("    for (int64 slice = threadIdx.y; at < arguments.counts[{}] && slice < arguments.slices; slice += {}) {{\n", store,
                step);
}

std::string moments_of_slices(const Body& body, const ReductionText& reductions, size_t mean, std::optional<size_t> m2) {
  const std::string_view type = type_name(body.compute);
  return loop_over_slices(mean, "kTileRows") +
         "      const int64 rows = rows_of_slice(arguments.rows, arguments.slices, arguments.rows_at_once, slice);\n" +
         format("      const MomentsFrom<{}> one = {{{}(rows), {}(0), {}, {}}};\n", type, type, type, partial(body, mean, "slice"),
                m2 ? partial(body, *m2, "slice") : format("{}(0)", type)) +
         format("      all[0] = {}(all[0], one);\n    }}\n", reductions.combine(Kind::Mean));
}

// Reads several numbers at a time, then combines them in order.
std::string numbers_of_slices(const Body& body, const ReductionText& reductions, size_t store) {
  const Kind kind = body.stores[store].over_rows;
  return loop_over_slices(store, "kTileRows * kSlicesTogether") +
         format(
             "      {} some[kSlicesTogether];\n"
             "#pragma unroll\n"
             "      for (int k = 0; k < kSlicesTogether; ++k) {{\n"
             "        const int64 one = slice + k * kTileRows;\n"
             "        some[k] = one < arguments.slices ? {} : {};\n"
             "      }}\n"
             "#pragma unroll\n"
             "      for (int k = 0; k < kSlicesTogether; ++k) all[0] = {}(all[0], some[k]);\n    }}\n",
             type_name(body.compute), partial(body, store, "one"), reductions.neutral(kind), reductions.combine(kind));
}

}  // namespace

std::string merge_source(const Body& body) {
  const ReductionText reductions(body);
  const std::string_view type = type_name(body.compute);
  std::string text = format(
      "constexpr int kSlicesTogether = 16;\n\n"
      "struct Merge {{\n"
      "  char *partials[{}], *results[{}];\n"
      "  int64 counts[{}], partial_bytes[{}];\n"
      "  int64 slices, rows, rows_at_once;  // rows that a slice takes together\n"
      "  uint64 adds;                       // to what is there: results, a bit each\n"
      "}};\n\n",
      body.stores.size(), body.stores.size(), body.stores.size(), body.stores.size());
  text +=
      "extern \"C\" __global__ void __launch_bounds__(kThreads) merge_slices(const Merge arguments) {\n"
      "  const int64 at = int64(blockIdx.x) * kTile + threadIdx.x;\n";
  size_t number = 0;
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const BodyStore& store = body.stores[i];
    if (!store.is_over_rows()) continue;
    const bool is_mean = store.over_rows == Kind::Mean;
    const auto m2 = is_mean ? m2_beside(body, i) : std::nullopt;
    const std::string slice_type = is_mean ? format("MomentsFrom<{}>", type) : std::string(type);
    if (store.over_rows == Kind::M2) {
      ++number;
      continue;  // merged together with its Mean
    }
    text += format("  if (blockIdx.y == {}) {{\n    {} all[1] = {{{}}};\n", number++, slice_type,
                   is_mean ? format("{{0, {}(0), {}(0), {}(0)}}", type, type, type) : reductions.neutral(store.over_rows));
    text += is_mean ? moments_of_slices(body, reductions, i, m2) : numbers_of_slices(body, reductions, i);
    text += format("    over_rows_of_block(all, {});\n    if (threadIdx.y != 0 || at >= arguments.counts[{}]) return;\n",
                   reductions.combine(store.over_rows), i);
    const auto put = [&](size_t to, const std::string& value) {
      const std::string_view result = type_name(body.stores[to].type);
      text += format("    put_result(({}*)arguments.results[{}] + at, convert<{}>({}), arguments.adds >> {} & 1);\n", result, to, result,
                     value, to);
    };
    put(i, is_mean ? "all[0].from + all[0].mean" : "all[0]");
    if (m2) put(*m2, "all[0].m2");
    text += "  }\n";
  }
  return text + "}\n";
}

}  // namespace hindcast::codegen::cuda
