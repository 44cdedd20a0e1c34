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

template <class Body, int kVector, bool kKeeps>
HC_DEVICE void run_segments(const Rows<Body>& arguments) {
  using T = typename Body::Compute;
  const int64 slices = int64(gridDim.x) * blockDim.y, slice = int64(blockIdx.x) * blockDim.y + threadIdx.y;
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
  int seen = 0;
  for (int64 first = int64(blockIdx.x) * blockDim.y; first < arguments.rows; first += slices) {
    const int64 row = first + threadIdx.y;
    const bool is_row = row < arguments.rows;
    T share = T(0);
    if constexpr (kHasMomentsOverRows<Body>) {
      if (is_row) ++seen;
      share = T(1) / T(seen == 0 ? 1 : seen);
    }
    RowPlace<Body> place = {arguments, is_row};
    place.template set<false>(is_row ? row : 0);
    const AtRow<Body> at_row = {{arguments.scalars}, place, is_row && threadIdx.x == 0};
    typename Body::Row numbers_of_row;
    Body::begin(numbers_of_row, at_row);
    for_each_below<kPasses<Body>>([&](auto pass) {
      constexpr int kPass = pass;
      using Pass = PassAt<Body, kPass>;
      using Reductions = typename Pass::Reductions;
      using SegmentReductions = typename Pass::SegmentReductions;
      using NumberReductions = typename Pass::NumberReductions;
      Numbers<Reductions> numbers;
      Numbers<NumberReductions> of_segments;
      clear<Reductions>(numbers);
      clear<NumberReductions>(of_segments);
      for (int64 segment = 0; segment < arguments.segments; ++segment) {
        typename Pass::Segment numbers_of_segment;
        Pass::begin_segment(numbers_of_row, numbers_of_segment, AtSegmentBegin<Body>{place, segment});
        Numbers<SegmentReductions> of_segment;
        clear<SegmentReductions>(of_segment);
        for (int64 number = threadIdx.x; is_row && number < pieces; number += blockDim.x) {
          const Piece<int64> piece = {number, segment, number};
          const int64 first_column = segment * arguments.columns + number * kVector;
          RowVectors<Body, kVector> vectors;
          for_each(typename Pass::Loads(),
                   [&](auto i) { get<i>(vectors) = load_kept<Body, kPass, i, kVector, kKeeps>(place, kept, piece, first_column); });
          Parts<Reductions, kVector> parts;
          Parts<SegmentReductions, kVector> segment_parts;
          RowResults<Body, kVector> results;
          SumsOfPiece<Body, kVector> of_columns;
          of_columns.share = share;
          of_columns.first = first < slices;
          for_each(typename Pass::Columns(), [&](auto i) {
            of_columns.sums[i] = {};
            if (first >= slices) of_columns.sums[i] = load_vector<kVector>(static_cast<const T*>(sums.memory[i]) + first_column);
          });
          T kept_values[1][kVector];  // every value is cheap to compute again
          using Element = AtElement<Body, int64, RowVectors<Body, kVector>, RowResults<Body, kVector>, Parts<Reductions, kVector>,
                                    T[1][kVector], SumsOfPiece<Body, kVector>>;
#pragma unroll
          for (int j = 0; j < kVector; ++j) {
            const AtElementOfSegment<Element, Parts<SegmentReductions, kVector>> at = {
                {place, piece, first_column, vectors, results, parts, kept_values, of_columns, j}, segment_parts};
            Pass::element(numbers_of_row, numbers_of_segment, at);
          }
          add_vector<Reductions, kVector>(numbers, parts);
          add_vector<SegmentReductions, kVector>(of_segment, segment_parts);
          for_each(typename Pass::Columns(), [&](auto i) { store_vector<kVector>(sums.memory[i] + first_column, of_columns.sums[i]); });
          store_pass<Pass, kVector>(place, piece, results);
        }
        over_row_each<SegmentReductions>(of_segment);
        Pass::end_segment(numbers_of_row, numbers_of_segment, AtSegmentEnd<Body, Pass>{place, sums, segment, of_segment, of_segments});
      }
      over_row_each<Reductions>(numbers);
      Pass::end(numbers_of_row, AtEndOfSegments<Numbers<Reductions>, Numbers<NumberReductions>>{{numbers}, of_segments});
    });
    Body::end(numbers_of_row, at_row);
  }
}

}  // namespace hindcast::device
#endif
