#pragma once
// What CUDA's skeletons of rows share: a row's place in the tensors, its vectors and its elements.

#include "codegen/device/skeletons/nest.h"
#include "codegen/device/skeletons/row_reductions.h"

#if HC_CUDA
namespace hindcast::device {

template <class Body>
using Rows = RowsArguments<kPointers<Body>, Body::kScalars, kTensors<Body>, kStores<Body>>;

/// The reduction of sums, maxima and minima; half of a pair has the neutral number of a sum.
template <OverRows kOver, class T>
struct OfRows : OfSum<T> {};
template <class T>
struct OfRows<OverRows::Max, T> : OfMax<T> {};
template <class T>
struct OfRows<OverRows::Min, T> : OfMin<T> {};
template <class Body, int kStore>
using OverRowsOf = OfRows<StoreAt<Body, kStore>::kOver, typename Body::Compute>;

template <class Body, int kLoad, int... kNumbers>
constexpr int count_passes(Indices<kNumbers...>) {
  return (int(contains(typename PassAt<Body, kNumbers>::Loads(), kLoad)) + ... + 0);
}
/// The passes that read the load's elements.
template <class Body, int kLoad>
inline constexpr int kPassesOf = count_passes<Body, kLoad>(Below<kPasses<Body>>());
/// Whether several passes read the load's elements, which the first may keep in shared memory.
template <class Body, int kLoad>
inline constexpr bool kIsReadAgain = kPassesOf<Body, kLoad> > 1 && LoadAt<Body, kLoad>::kHasElements && !LoadAt<Body, kLoad>::kCounts;
template <class Body, int kPass, int kLoad>
constexpr bool is_first_pass_of() {
  bool is_first = contains(typename PassAt<Body, kPass>::Loads(), kLoad);
  if constexpr (kPass > 0) is_first = is_first && count_passes<Body, kLoad>(Below<kPass>()) == 0;
  return is_first;
}

/// Vectors of loads and results that have elements; nothing for the others.
struct Nothing {};
template <int kVector>
struct OfRow {
  template <class Load, bool kHasElements>
  struct Choose {
    using Type = Nothing;
  };
  template <class Load>
  struct Choose<Load, true> {
    using Type = typename OfNest<kVector>::template Vectors<Load>;
  };
  template <class Load>
  using Loads = typename Choose<Load, Load::kHasElements>::Type;

  template <class Store, bool kIsOfElements>
  struct ChooseStore {
    using Type = Nothing;
  };
  template <class Store>
  struct ChooseStore<Store, true> {
    using Type = Vector<typename Store::Type, kVector>;
  };
  template <class Store>
  using Stores = typename ChooseStore<Store, kIsOfElements<Store>>::Type;
};
template <class Body, int kVector>
using RowVectors = typename Body::Loads::template PackOf<OfRow<kVector>::template Loads>;
template <class Body, int kVector>
using RowResults = typename Body::Stores::template PackOf<OfRow<kVector>::template Stores>;

/// A piece (a vector) of a row: its number, its segment, its number in the segment.
template <class Number>
struct Piece {
  Number number;
  int64 segment, within;
};

/// A row: whether there is one for this thread, and its offset in each tensor.
template <class Body>
struct RowPlace {
  const Rows<Body>& arguments;
  bool is_row;
  int64 to[kTensors<Body>];

  /// kFlat: there is one loop and one segment. One loop, which most kernels have, is a case of its own: it takes no division. kUnrolled:
  /// where several blocks share a row, ptxas spills registers otherwise.
  template <bool kFlat, bool kUnrolled = false>
  HC_DEVICE_MEMBER void set(int64 row) {
    if (kFlat || arguments.loops == 1) {
#pragma unroll
      for (int i = 0; i < kTensors<Body>; ++i) to[i] = row * arguments.tensors[i].row_strides[0];
    }
    if constexpr (!kFlat) {
      if (arguments.loops == 1) return;
#pragma unroll
      for (int i = 0; i < kTensors<Body>; ++i) to[i] = 0;
      for_each_loop<kUnrolled>(row, static_cast<const RowsLaunch&>(arguments), [&](int loop, int64 index) {
#pragma unroll
        for (int i = 0; i < kTensors<Body>; ++i) to[i] += index * arguments.tensors[i].row_strides[loop];
      });
    }
  }

  template <bool kFlat, class Number>
  HC_DEVICE_MEMBER Piece<Number> piece(Number number) const {
    const int64 segment = kFlat || arguments.segments == 1 ? 0 : int64(divide(number, arguments.pieces_of_segment));
    return {number, segment, int64(number) - segment * arguments.pieces_of_segment.divisor};
  }
  /// The bytes from the tensor's first element to the piece, of elements of `size` bytes.
  template <class Number>
  HC_DEVICE_MEMBER int64 bytes(int tensor, const Piece<Number>& piece, int size) const {
    return to[tensor] + piece.segment * arguments.tensors[tensor].segment_stride + piece.within * size;
  }

  template <int kLoad>
  HC_DEVICE_MEMBER auto address(int64 bytes) const {
    return reinterpret_cast<const typename LoadAt<Body, kLoad>::Type*>(arguments.pointers[kLoad] + bytes);
  }
  template <int kLoad, int kVector, class Number>
  HC_DEVICE_MEMBER auto load_piece(const Piece<Number>& piece) const {
    const auto* const from = address<kLoad>(bytes(kLoad, piece, kVector * sizeof(typename LoadAt<Body, kLoad>::Type)));
    if constexpr (LoadAt<Body, kLoad>::kCounts) {
      return load_counters<kVector>(from);
    } else {
      return load_vector<kVector>(from);
    }
  }
  template <int kLoad>
  HC_DEVICE_MEMBER auto load_of_segment(int64 segment) const {
    return *address<kLoad>(to[kLoad] + segment * arguments.tensors[kLoad].segment_stride);
  }
};

/// Reads what is known before a row's first pass, and stores its numbers after the last.
template <class Body>
struct AtRow : ScalarWords<Body> {
  const RowPlace<Body>& place;
  bool stores;  // whether this thread does

  template <int kLoad>
  HC_DEVICE_MEMBER auto load(Index<kLoad>) const {
    return *place.template address<kLoad>(place.to[kLoad]);
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void store(Index<kStore>, T value) const {
    constexpr int kTensor = kLoads<Body> + kStore;
    T* const to = reinterpret_cast<T*>(place.arguments.pointers[kTensor] + place.to[kTensor]);
    if (stores) put_result(to, value, place.arguments.adds >> kStore & 1);
  }
};

/// Calls `run(place, numbers, share, is_first)` for each row that this thread takes part in. `numbers`: those of the row that are known
/// before the first pass. `share`: 1 divided by the number of rows so far. `is_first`: it is the first of its slice. All threads of a block
/// make the same number of iterations, since `run` contains barriers. Returns the number of this thread's rows.
template <class Body, bool kFlat, class Run>
HC_DEVICE int for_each_row(const Rows<Body>& arguments, Run run) {
  using T = typename Body::Compute;
  const int64 slices = int64(gridDim.x) * blockDim.y;
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
    place.template set<kFlat>(is_row ? row : 0);
    const AtRow<Body> at_row = {{arguments.scalars}, place, is_row && threadIdx.x == 0};
    typename Body::Row numbers;
    Body::begin(numbers, at_row);
    run(place, numbers, share, first < slices);
    Body::end(numbers, at_row);
  }
  return seen;
}

/// The numbers that a pass has reduced.
template <class Numbers>
struct AtEnd {
  const Numbers& numbers;
  template <int kReduction>
  HC_DEVICE_MEMBER auto reduced(Index<kReduction>) const {
    return get<kReduction>(numbers);
  }
};

/// Stores the vectors of a pass's results.
template <class Pass, int kVector, class Body, class Number, class Results>
HC_DEVICE void store_pass(const RowPlace<Body>& place, const Piece<Number>& piece, const Results& results) {
  for_each(typename Pass::Stores(), [&](auto i) {
    const int64 bytes = place.bytes(kLoads<Body> + i, piece, kVector * sizeof(typename StoreAt<Body, i>::Type));
    store_with_leaves<Body, i>(place.arguments.pointers, get<i>(results), bytes);
  });
}

/// One element of a piece. `Sums`: where the sums of columns are.
template <class Body, class Number, class Vectors, class Results, class Parts, class Kept, class Sums>
struct AtElement {
  const RowPlace<Body>& place;
  const Piece<Number>& piece;
  int64 first_column;
  const Vectors& vectors;
  Results& results;
  Parts& parts;
  Kept& kept_values;  // [kKept][kVector]
  Sums& sums;
  int j;  // in the vectors

  template <int kLoad>
  HC_DEVICE_MEMBER auto load(Index<kLoad>) const {
    if constexpr (LoadAt<Body, kLoad>::kHasElements) {
      return get<kLoad>(vectors).get(j);
    } else {
      return place.template load_of_segment<kLoad>(piece.segment);
    }
  }
  HC_DEVICE_MEMBER int64 column() const { return first_column + j; }
  template <int kSlot>
  HC_DEVICE_MEMBER auto kept(Index<kSlot>) const {
    return kept_values[kSlot][j];
  }
  template <int kSlot, class T>
  HC_DEVICE_MEMBER void keep(Index<kSlot>, T value) const {
    kept_values[kSlot][j] = value;
  }
  template <int kReduction, class T>
  HC_DEVICE_MEMBER void reduce(Index<kReduction>, T value) const {
    get<kReduction>(parts).add(j, value);
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void store(Index<kStore>, T value) const {
    get<kStore>(results).set(j, value);
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void add_to_column(Index<kStore> store, T value) const {
    using Result = StoreAt<Body, kStore>;
    if constexpr (Result::kOver == OverRows::Mean) {
      const T mean = sums.is_first() ? T(0) : sums.get(store, j), distance = value - mean;
      const T now = mean + distance * sums.share;
      sums.set(store, j, now);
      if constexpr (Result::kM2 >= 0) {
        constexpr Index<Result::kM2> kM2;
        sums.set(kM2, j, (sums.is_first() ? T(0) : sums.get(kM2, j)) + distance * (value - now));
      }
    } else if constexpr (Result::kOver != OverRows::M2) {
      sums.set(store, j, sums.is_first() ? value : typename OverRowsOf<Body, kStore>::Combine()(sums.get(store, j), value));
    }
  }
};

}  // namespace hindcast::device
#endif
