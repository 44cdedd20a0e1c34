#pragma once
// Rows, one after the other: each pass reads a row again, which is then in a cache. A row has segments of contiguous elements.

#include "codegen/device/skeletons/cpu/row_reductions.h"

namespace hindcast::device::cpu {

using Rows = RowLoopArguments;

/// The address of a row, and of a segment of it.
HC_DEVICE char* address(const Rows& rows, int pointer, long row) { return rows.pointers[pointer] + row * rows.row_strides[pointer]; }
HC_DEVICE char* address(const Rows& rows, int pointer, long row, long segment) {
  return address(rows, pointer, row) + segment * rows.segment_strides[pointer];
}

/// Reads what is known before a row's first pass, and stores its numbers after the last.
template <class Body>
struct AtRow {
  const Rows& rows;
  long row;

  HC_DEVICE_MEMBER auto scalar(int number) const { return (typename Body::Compute)rows.scalars[number]; }
  template <int kLoad>
  HC_DEVICE_MEMBER LoadType<Body, kLoad> load(Index<kLoad>) const {
    return *reinterpret_cast<const LoadType<Body, kLoad>*>(address(rows, kLoad, row));
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void store(Index<kStore>, T value) const {
    *reinterpret_cast<T*>(address(rows, kLoads<Body> + kStore, row)) = value;
  }
};

/// Reads the numbers of a segment, and adds to those of all segments.
template <class Body, class OfSegment, class OfNumbers>
struct AtSegment {
  const Rows& rows;
  const OfSegment& of_segment;
  OfNumbers& of_numbers;
  long row, segment;

  template <int kLoad>
  HC_DEVICE_MEMBER LoadType<Body, kLoad> load(Index<kLoad>) const {
    return *reinterpret_cast<const LoadType<Body, kLoad>*>(address(rows, kLoad, row, segment));
  }
  template <int kReduction>
  HC_DEVICE_MEMBER auto reduced(Index<kReduction> which) const {
    return of_segment.result(which);
  }
  template <int kReduction, class T>
  HC_DEVICE_MEMBER void add_number(Index<kReduction> which, T value) const {
    of_numbers.add_number(which, value);
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void add_to_channel(Index<kStore>, T value) const {
    T& to = *reinterpret_cast<T*>(address(rows, kLoads<Body> + kStore, row, segment));
    to = combine<StoreOf<Body, kStore>::kOver>(to, value);
  }
};

/// What the loops over a segment's elements read and write.
template <class Body>
struct SegmentMemory {
  using T = typename Body::Compute;
  char* of[kPointers<Body>];  // by pointer: those that the pass uses
  T* kept[Body::kKept + 1];   // an array has at least one element
  long first_column;          // of the segment, in the row
  T share;                    // one divided by the number of rows so far, of a body with moments over rows

  template <int... kLoad, int... kResult, int... kSlot>
  HC_DEVICE_MEMBER void set(const Rows& rows, long row, long segment, Indices<kLoad...>, Indices<kResult...>, Indices<kSlot...>) {
    first_column = segment * rows.columns;
    ((of[kLoad] = address(rows, kLoad, row, segment)), ...);
    ((of[kLoads<Body> + kResult] = address(rows, kLoads<Body> + kResult, row, segment)), ...);
    ((kept[kSlot] = reinterpret_cast<T*>(rows.kept) + (kSlot * rows.segments + segment) * rows.columns), ...);
  }
};

/// Element i of a segment; its block has begun at `begin`.
template <class Body, class OfRow, class OfSegment, bool kIsNear, bool kWritesLeaves>
struct RowElement : MemoryElement<Body, kWritesLeaves> {
  using T = typename Body::Compute;
  static constexpr bool kNear = kIsNear;
  const SegmentMemory<Body>& segment;
  OfRow& of_row;
  OfSegment& of_segment;
  long begin;

  HC_DEVICE_MEMBER long column() const { return segment.first_column + this->i; }
  template <int kSlot>
  HC_DEVICE_MEMBER T kept(Index<kSlot>) const {
    return segment.kept[kSlot][this->i];
  }
  template <int kSlot>
  HC_DEVICE_MEMBER void keep(Index<kSlot>, T value) const {
    segment.kept[kSlot][this->i] = value;
  }
  template <int kReduction>
  HC_DEVICE_MEMBER void reduce(Index<kReduction> which, T value) const {
    of_row.add(which, this->i - begin, value);
  }
  template <int kReduction>
  HC_DEVICE_MEMBER void reduce_segment(Index<kReduction> which, T value) const {
    of_segment.add(which, this->i - begin, value);
  }
  template <int kStore>
  HC_DEVICE_MEMBER void add_to_column(Index<kStore>, T value) const {
    using Store = StoreOf<Body, kStore>;
    T& to = reinterpret_cast<T*>(this->memory[kLoads<Body> + kStore])[this->i];
    if constexpr (Store::kOver == OverRows::Mean) {
      const T distance = value - to;
      to += distance * segment.share;
      if constexpr (Store::kM2 >= 0) reinterpret_cast<T*>(this->memory[kLoads<Body> + Store::kM2])[this->i] += distance * (value - to);
    } else {
      to = combine<Store::kOver>(to, value);
    }
  }
};

/// The loops of a pass over a segment. `Numbers`: the row, and the segment if the body goes by segments.
template <class Body, class Pass, bool kWritesLeaves, class OfRow, class OfSegment, class... Numbers>
struct SegmentLoops {
  const SegmentMemory<Body>& memory;
  OfRow& of_row;
  OfSegment& of_segment;

  template <bool kNear>
  HC_DEVICE_MEMBER RowElement<Body, OfRow, OfSegment, kNear, kWritesLeaves> at(long i, long begin) const {
    return {{memory.of, i}, memory, of_row, of_segment, begin};
  }

  /// Nothing that is written overlaps anything that is read, except what the same iteration reads.
  template <bool kNear>
  HC_DEVICE_MEMBER void run(long begin, long end, const Numbers&... numbers) const {
    if constexpr (!Body::kHasNumbersOfSegments) {
#pragma clang loop vectorize(assume_safety)
      for (long i = begin; i < end; ++i) Pass::element(numbers..., at<kNear>(i, begin));
    } else {
      // Clang's unrolled loop fills several vectors per iteration and processes the remainder element by element, which is most of a short
      // segment. So the remainder has a second loop, with one vector per iteration.
      constexpr long kSeveralVectors = 32;  // elements of 4 bytes
      const long whole = begin + (end - begin) / kSeveralVectors * kSeveralVectors;
#pragma clang loop vectorize(assume_safety)
      for (long i = begin; i < whole; ++i) Pass::element(numbers..., at<kNear>(i, begin));
#pragma clang loop vectorize(assume_safety) interleave_count(1)
      for (long i = whole; i < end; ++i) Pass::element(numbers..., at<kNear>(i, begin));
    }
  }
  HC_DEVICE_MEMBER int look(long begin, long end, const Numbers&... numbers) const {
    int far = Pass::far_before(numbers..., at<true>(begin, begin));
    for (long i = begin; i < end; ++i) far |= Pass::far(numbers..., at<true>(i, begin));
    return far;
  }

  HC_DEVICE_MEMBER void run_all(long columns, const Numbers&... numbers) const {
    if constexpr (OfRow::kCount + OfSegment::kCount == 0 && Pass::kAnglesToCheck == AnglesToCheck::None) {
      run<false>(0, columns, numbers...);
      return;
    }
    for (long begin = 0; begin < columns; begin += kBlockLength) {
      const long end = begin + kBlockLength < columns ? begin + kBlockLength : columns;
      of_row.begin_block();
      of_segment.begin_block();
      if constexpr (Pass::kAnglesToCheck == AnglesToCheck::None) {
        run<false>(begin, end, numbers...);
      } else if (!look(begin, end, numbers...)) {
        run<true>(begin, end, numbers...);
      } else {
        run<false>(begin, end, numbers...);
      }
      of_row.end_block(end - begin);
      of_segment.end_block(end - begin);
    }
  }
};

/// Calls `run(segment, memory)` for the segments of a row.
template <class Body, class Pass, bool kWritesLeaves, class Run>
HC_DEVICE void for_each_segment(const Rows& rows, long row, typename Body::Compute share, Run run) {
  for (long segment = 0; segment < rows.segments; ++segment) {
    SegmentMemory<Body> memory;
    memory.share = share;
    memory.set(rows, row, segment, typename Pass::Loads(), Below<(kWritesLeaves ? kPointers<Body> : kTensors<Body>)-kLoads<Body>>(),
               Below<Body::kKept>());
    run(segment, memory);
  }
}

/// The numbers that a pass has reduced.
template <class OfRow, class OfNumbers>
struct AtEnd {
  const OfRow& of_row;
  const OfNumbers& of_numbers;
  template <int kReduction>
  HC_DEVICE_MEMBER auto reduced(Index<kReduction> which) const {
    return of_row.result(which);
  }
  template <int kReduction>
  HC_DEVICE_MEMBER auto reduced_numbers(Index<kReduction> which) const {
    return of_numbers.result(which);
  }
};

template <class Body, class Pass, bool kWritesLeaves>
HC_DEVICE void run_pass(const Rows& rows, typename Body::Row& numbers, long row, typename Body::Compute share) {
  using OfRow = Reducer<typename Pass::Reductions>;
  typename OfRow::Blocks blocks;
  OfRow of_row = {blocks};
  of_row.begin();
  using None = Reducer<Types<>>;
  if constexpr (!Body::kGoesBySegments) {
    None::Blocks no_blocks;
    None none = {no_blocks};
    for_each_segment<Body, Pass, kWritesLeaves>(rows, row, share, [&](long, const SegmentMemory<Body>& memory) {
      SegmentLoops<Body, Pass, kWritesLeaves, OfRow, None, typename Body::Row>{memory, of_row, none}.run_all(rows.columns, numbers);
    });
    Pass::end(numbers, AtEnd<OfRow, None>{of_row, none});
  } else {
    using OfSegment = Reducer<typename Pass::SegmentReductions>;
    using OfNumbers = Reducer<typename Pass::NumberReductions>;
    typename OfSegment::Blocks segment_blocks;
    typename OfNumbers::Blocks number_blocks;
    OfNumbers of_numbers = {number_blocks};
    of_numbers.begin();
    for_each_segment<Body, Pass, kWritesLeaves>(rows, row, share, [&](long segment, const SegmentMemory<Body>& memory) {
      OfSegment of_segment = {segment_blocks};
      const AtSegment<Body, OfSegment, OfNumbers> at_segment = {rows, of_segment, of_numbers, row, segment};
      typename Pass::Segment numbers_of_segment;
      Pass::begin_segment(numbers, numbers_of_segment, at_segment);
      of_segment.begin();
      SegmentLoops<Body, Pass, kWritesLeaves, OfRow, OfSegment, typename Body::Row, typename Pass::Segment>{memory, of_row, of_segment}
          .run_all(rows.columns, numbers, numbers_of_segment);
      Pass::end_segment(numbers, numbers_of_segment, at_segment);
    });
    Pass::end(numbers, AtEnd<OfRow, OfNumbers>{of_row, of_numbers});
  }
}

template <class Body, bool kWritesLeaves, class... Pass>
HC_DEVICE void run_passes(const Rows& rows, typename Body::Row& numbers, long row, typename Body::Compute share, Types<Pass...>) {
  (run_pass<Body, Pass, kWritesLeaves>(rows, numbers, row, share), ...);
}

template <class Body, bool kWritesLeaves>
HC_DEVICE void run_rows(Rows rows) {
  using T = typename Body::Compute;
  [[maybe_unused]] long* rows_so_far = nullptr;
  if constexpr (kHasMomentsOverRows<Body>) {
    rows_so_far = reinterpret_cast<long*>(rows.kept);
    rows.kept += sizeof(long);
  }
  for (long row = 0; row < rows.rows; ++row) {
    T share = T(0);
    if constexpr (kHasMomentsOverRows<Body>) share = T(1) / static_cast<T>(++*rows_so_far);
    typename Body::Row numbers;
    Body::begin(numbers, AtRow<Body>{rows, row});
    run_passes<Body, kWritesLeaves>(rows, numbers, row, share, typename Body::Passes());
    Body::end(numbers, AtRow<Body>{rows, row});
  }
}

}  // namespace hindcast::device::cpu
