#include "codegen/cuda/entry.h"

#include <algorithm>
#include <array>

namespace hindcast::codegen::cuda {

const char* name_of(Entry entry) {
  constexpr std::array<const char*, kEntries> kNames = {"dense",
                                                        "dense_few",
                                                        "dense_each",
                                                        "nest",
                                                        "nest_each",
                                                        "nest_any",
                                                        "tiles",
                                                        "rows",
                                                        "rows_each",
                                                        "rows_shared",
                                                        "rows_shared_each",
                                                        "rows_long",
                                                        "rows_long_each",
                                                        "rows_split",
                                                        "rows_split_each",
                                                        "segments",
                                                        "segments_each",
                                                        "segments_shared",
                                                        "segments_shared_each",
                                                        "merge_slices",
                                                        "sets",
                                                        "sets_each"};
  return kNames[static_cast<size_t>(entry)];
}

bool asks_for_shared_memory(std::string_view name) {
  using enum Entry;
  constexpr std::array kThey = {RowsShared, RowsSharedEach, SegmentsShared, SegmentsSharedEach};
  return std::any_of(kThey.begin(), kThey.end(), [&](Entry entry) { return name == name_of(entry); });
}

}  // namespace hindcast::codegen::cuda
