#include "codegen/cpu/row_packing.h"

#include <algorithm>
#include <cstring>

namespace hindcast::codegen::cpu {
namespace {

// Elements. Loops over segments shorter than kFillsNoVector fill no vectors; loops over kFillsVectors or more fill several at once, since
// Clang unrolls them.
constexpr int64_t kFillsNoVector = 16, kFillsVectors = 64;
// Copies of kCopiedBytes stay in a core's private cache. In a larger row, segments of a length between the two limits are not copied, since
// copying costs as much as it gains. In rows of more than kMostCopiedBytes none are, to limit memory.
constexpr int64_t kCopiedBytes = 1 << 16, kMostCopiedBytes = 1 << 20;

int64_t bytes_of_elements(c10::ArrayRef<Traffic> traffic, c10::ArrayRef<int64_t> widths) {
  int64_t bytes = 0;
  for (size_t i = 0; i < traffic.size(); ++i) {
    if (traffic[i] != Traffic::Other) bytes += widths[i];
  }
  return bytes;
}

/// A copy of segments of rows.
struct Segments {
  int64_t rows, segments, bytes;
  char* to;
  int64_t to_row, to_segment;
  const char* from;
  int64_t from_row, from_segment;
};

template <class Copy>
void copy_each(const Segments& all, Copy copy) {
  for (int64_t segment = 0; segment < all.segments; ++segment) {
    for (int64_t row = 0; row < all.rows; ++row)
      copy(all.to + row * all.to_row + segment * all.to_segment, all.from + row * all.from_row + segment * all.from_segment);
  }
}

template <int64_t kBytes>
void copy_segments_of(const Segments& all) {
  copy_each(all, [](char* to, const char* from) { std::memcpy(to, from, kBytes); });
}

void copy_segments(const Segments& all) {
  switch (all.bytes) {
    case 4:
      return copy_segments_of<4>(all);
    case 8:
      return copy_segments_of<8>(all);
    case 16:
      return copy_segments_of<16>(all);
    case 32:
      return copy_segments_of<32>(all);
    case 64:
      return copy_segments_of<64>(all);
    default:
      return copy_each(all, [bytes = static_cast<size_t>(all.bytes)](char* to, const char* from) { std::memcpy(to, from, bytes); });
  }
}

}  // namespace

bool RowPacking::are_worth_copying(c10::ArrayRef<Traffic> traffic, c10::ArrayRef<int64_t> widths, int64_t segments,
                                   int64_t segment_length) {
  if (segments == 1 || segment_length >= kFillsVectors) return false;
  return segments * segment_length * bytes_of_elements(traffic, widths) <=
         (segment_length < kFillsNoVector ? kMostCopiedBytes : kCopiedBytes);
}

RowPacking::RowPacking(c10::ArrayRef<Traffic> traffic, c10::ArrayRef<int64_t> widths, const Loop& segments, int64_t segment_length)
    : traffic_(traffic), widths_(widths), segments_(segments), segment_length_(segment_length) {
  const int64_t row_bytes = row_length() * bytes_of_elements(traffic, widths);
  rows_at_once_ = std::clamp<int64_t>(kCopiedBytes / std::max<int64_t>(row_bytes, 1), 1, 64);
  copies_.resize(static_cast<size_t>(rows_at_once_ * row_bytes));
}

void RowPacking::run(RowsKernel* kernel, const device::RowLoopArguments& rows) {
  Pointers at(rows.pointers, rows.pointers + traffic_.size());
  c10::SmallVector<long, 32> steps(rows.row_strides, rows.row_strides + traffic_.size());
  char* place = copies_.data();
  for (size_t i = 0; i < at.size(); ++i) {
    if (traffic_[i] == Traffic::Other) continue;
    at[i] = place;
    steps[i] = row_length() * widths_[i];
    place += rows_at_once_ * steps[i];
  }
  device::RowLoopArguments copied = rows;
  copied.pointers = at.data();
  copied.row_strides = copied.segment_strides = steps.data();
  copied.segments = 1;
  copied.columns = row_length();
  for (int64_t row = 0; row < rows.rows; row += rows_at_once_) {
    copied.rows = std::min(rows_at_once_, rows.rows - row);
    const auto segments_of = [&](size_t i, bool back) {
      const int64_t bytes = segment_length_ * widths_[i];
      char* const there = rows.pointers[i] + row * rows.row_strides[i];
      if (back) return Segments{copied.rows, segments_.size, bytes, there, rows.row_strides[i], segments_.steps[i], at[i], steps[i], bytes};
      return Segments{copied.rows, segments_.size, bytes, at[i], steps[i], bytes, there, rows.row_strides[i], segments_.steps[i]};
    };
    for (size_t i = 0; i < at.size(); ++i) {
      if (traffic_[i] == Traffic::Read) copy_segments(segments_of(i, false));
      if (traffic_[i] == Traffic::Other) at[i] = rows.pointers[i] + row * rows.row_strides[i];
    }
    kernel(copied);
    for (size_t i = 0; i < at.size(); ++i) {
      if (traffic_[i] == Traffic::Written) copy_segments(segments_of(i, true));
    }
  }
}

}  // namespace hindcast::codegen::cpu
