#pragma once
// The entry points that a body's text may have (described in source.h and row_source.h), and sets of them.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace hindcast::codegen::cuda {

enum class Entry : uint8_t {
  Dense,
  DenseFew,
  DenseEach,
  Nest,
  NestEach,
  NestAny,
  Tiles,
  Rows,
  RowsEach,
  RowsShared,
  RowsSharedEach,
  RowsLong,
  RowsLongEach,
  RowsSplit,
  RowsSplitEach,
  Segments,
  SegmentsEach,
  SegmentsShared,
  SegmentsSharedEach,
  Merge,
  Sets,
  SetsEach,
};
inline constexpr size_t kEntries = 22;
/// The function's name in the text.
const char* name_of(Entry entry);
/// Whether the entry point with this name may need more shared memory than a block has by default.
bool asks_for_shared_memory(std::string_view name);

class Entries {
 public:
  constexpr Entries() = default;
  constexpr Entries(std::initializer_list<Entry> entries) {
    for (const Entry entry : entries) bits_ |= bit(entry);
  }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(Entry entry) const { return (bits_ & bit(entry)) != 0; }
  constexpr bool has_one_of(Entries others) const { return (bits_ & others.bits_) != 0; }
  constexpr void add(Entries others) { bits_ |= others.bits_; }
  template <class Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i < kEntries; ++i) {
      if (has(static_cast<Entry>(i))) visit(static_cast<Entry>(i));
    }
  }

 private:
  static constexpr uint32_t bit(Entry entry) { return uint32_t{1} << static_cast<uint32_t>(entry); }

  uint32_t bits_ = 0;
};

}  // namespace hindcast::codegen::cuda
