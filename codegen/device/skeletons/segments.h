#pragma once
// Rows of several segments with numbers per segment: a block's threads have one segment at a time. A pass of the body then has also
//
//   struct Segment { float x2, v3; };     // numbers of a segment
//   using SegmentReductions = Types<MaxOf<float>>;  // of a segment's elements
//   using NumberReductions = Types<SumOf<float>>;   // of the segments' numbers, over the row
//   template <class At> static void begin_segment(const Row& row, Segment& segment, const At& at);
//   template <class At> static void end_segment(const Row& row, Segment& segment, const At& at);
//
// and `element` and `end` take the segment's numbers, and those of NumberReductions.

#include "codegen/device/skeletons/rows_in_memory.h"

#if HC_CUDA
namespace hindcast::device {

template <class Body>
struct AtSegmentBegin {
  const RowPlace<Body>& place;
  int64 segment;
  template <int kLoad>
  HC_DEVICE_MEMBER auto load(Index<kLoad>) const {
    return place.template load_of_segment<kLoad>(segment);
  }
};

template <class Body, class Pass>
struct AtSegmentEnd {
  const RowPlace<Body>& place;
  const SumsInMemory<Body>& sums;
  int64 segment;
  const Numbers<typename Pass::SegmentReductions>& numbers;
  Numbers<typename Pass::NumberReductions>& of_segments;

  template <int kReduction>
  HC_DEVICE_MEMBER auto reduced(Index<kReduction>) const {
    return get<kReduction>(numbers);
  }
  /// All threads have a segment's number.
  template <int kReduction, class T>
  HC_DEVICE_MEMBER void add_number(Index<kReduction>, T value) const {
    auto& number = get<kReduction>(of_segments);
    number = At<kReduction, typename Pass::NumberReductions>::with_number(number, value);
  }
  /// One thread writes the number of a channel.
  template <int kStore, class T>
  HC_DEVICE_MEMBER void add_to_channel(Index<kStore>, T value) const {
    constexpr int kTensor = kLoads<Body> + kStore;
    if (!place.is_row || threadIdx.x != 0) return;
    char* const memory = reinterpret_cast<char*>(sums.memory[kStore]);
    T* const channel = reinterpret_cast<T*>(memory + place.to[kTensor] + segment * place.arguments.tensors[kTensor].segment_stride);
    *channel = typename OverRowsOf<Body, kStore>::Combine()(*channel, value);
  }
};

template <class Numbers, class OfSegments>
struct AtEndOfSegments : AtEnd<Numbers> {
  const OfSegments& of_segments;
  template <int kReduction>
  HC_DEVICE_MEMBER auto reduced_numbers(Index<kReduction>) const {
    return get<kReduction>(of_segments);
  }
};

/// An element of a segment.
template <class Element, class SegmentParts>
struct AtElementOfSegment : Element {
  SegmentParts& segment_parts;
  template <int kReduction, class T>
  HC_DEVICE_MEMBER void reduce_segment(Index<kReduction>, T value) const {
    get<kReduction>(segment_parts).add(this->j, value);
  }
};

/// What the passes of a row share.
template <class Body, int kVector, bool kKeeps>
struct SegmentedRow {
  using T = typename Body::Compute;
  const RowPlace<Body>& place;
  const KeptLoads<Body>& kept;
  const SumsInMemory<Body>& sums;
  typename Body::Row& numbers;
  T share;
  bool is_first;  // of its slice

  /// A thread's vector of a segment.
  template <int kPass>
  HC_DEVICE_MEMBER void run_piece(const Piece<int64>& piece, const typename PassAt<Body, kPass>::Segment& numbers_of_segment,
                                  Numbers<typename PassAt<Body, kPass>::Reductions>& of_row,
                                  Numbers<typename PassAt<Body, kPass>::SegmentReductions>& of_segment) const {
    using Pass = PassAt<Body, kPass>;
    using RowParts = Parts<typename Pass::Reductions, kVector>;
    using SegmentParts = Parts<typename Pass::SegmentReductions, kVector>;
    const int64 first_column = piece.segment * place.arguments.columns + piece.number * kVector;
    RowVectors<Body, kVector> vectors;
    for_each(typename Pass::Loads(),
             [&](auto i) { get<i>(vectors) = load_kept<Body, kPass, i, kVector, kKeeps>(place, kept, piece, first_column); });
    RowParts parts;
    SegmentParts segment_parts;
    RowResults<Body, kVector> results;
    SumsOfPiece<Body, kVector> of_columns;
    of_columns.share = share;
    of_columns.first = is_first;
    for_each(typename Pass::Columns(), [&](auto i) {
      of_columns.sums[i] = {};
      if (!is_first) of_columns.sums[i] = load_vector<kVector>(static_cast<const T*>(sums.memory[i]) + first_column);
    });
    T kept_values[1][kVector];  // every value is cheap to compute again
    using Element =
        AtElement<Body, int64, RowVectors<Body, kVector>, RowResults<Body, kVector>, RowParts, T[1][kVector], SumsOfPiece<Body, kVector>>;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const AtElementOfSegment<Element, SegmentParts> at = {
          {place, piece, first_column, vectors, results, parts, kept_values, of_columns, j}, segment_parts};
      Pass::element(numbers, numbers_of_segment, at);
    }
    add_vector<typename Pass::Reductions, kVector>(of_row, parts);
    add_vector<typename Pass::SegmentReductions, kVector>(of_segment, segment_parts);
    for_each(typename Pass::Columns(), [&](auto i) { store_vector<kVector>(sums.memory[i] + first_column, of_columns.sums[i]); });
    store_pass<Pass, kVector>(place, piece, results);
  }

  template <int kPass>
  HC_DEVICE_MEMBER void run_pass(int64 pieces) const {
    using Pass = PassAt<Body, kPass>;
    Numbers<typename Pass::Reductions> of_row;
    Numbers<typename Pass::NumberReductions> of_segments;
    clear<typename Pass::Reductions>(of_row);
    clear<typename Pass::NumberReductions>(of_segments);
    for (int64 segment = 0; segment < place.arguments.segments; ++segment) {
      typename Pass::Segment numbers_of_segment;
      Pass::begin_segment(numbers, numbers_of_segment, AtSegmentBegin<Body>{place, segment});
      Numbers<typename Pass::SegmentReductions> of_segment;
      clear<typename Pass::SegmentReductions>(of_segment);
      for (int64 number = threadIdx.x; place.is_row && number < pieces; number += blockDim.x)
        run_piece<kPass>({number, segment, number}, numbers_of_segment, of_row, of_segment);
      over_row_each<typename Pass::SegmentReductions>(of_segment);
      Pass::end_segment(numbers, numbers_of_segment, AtSegmentEnd<Body, Pass>{place, sums, segment, of_segment, of_segments});
    }
    over_row_each<typename Pass::Reductions>(of_row);
    using End = AtEndOfSegments<Numbers<typename Pass::Reductions>, Numbers<typename Pass::NumberReductions>>;
    Pass::end(numbers, End{{of_row}, of_segments});
  }
};

template <class Body, int kVector, bool kKeeps>
HC_DEVICE void run_segments(const Rows<Body>& arguments) {
  using T = typename Body::Compute;
  const int64 slice = int64(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64 pieces = arguments.columns / kVector;
  KeptLoads<Body> kept = {};
  if constexpr (kKeeps) kept.place(smem, arguments);
  SumsInMemory<Body> sums;
  sums.template place<false>(arguments, slice, nullptr);
  bool has_channels = false;
  for_each_below<kStores<Body>>([&](auto i) {
    if constexpr (kIsOfChannels<StoreAt<Body, i>>) {
      has_channels = true;
      // A slice without rows has no memory to initialise.
      for (int64 at = threadIdx.x; slice < arguments.rows && at < arguments.stores[i].count; at += blockDim.x)
        sums.memory[i][at] = OverRowsOf<Body, i>::none();
    }
  });
  if (has_channels) __syncthreads();
  for_each_row<Body, false>(arguments, [&](const RowPlace<Body>& place, typename Body::Row& numbers, T share, bool is_first) {
    const SegmentedRow<Body, kVector, kKeeps> row = {place, kept, sums, numbers, share, is_first};
    for_each_below<kPasses<Body>>([&](auto pass) { row.template run_pass<pass>(pieces); });
  });
}

}  // namespace hindcast::device
#endif
