#pragma once
// Rows of a few elements: the lanes of vectors are rows. Rows are processed block by block. Columns are first copied to contiguous arrays,
// and results back from them: vector loads and stores with strides (gathers, scatters) are slower than that.

#include "codegen/device/skeletons/cpu/rows.h"

namespace hindcast::device::cpu {

/// Rows per block.
inline constexpr int kRowsAtOnce = 64;
/// Arrays of a block's rows begin at cache lines, so that no vector is in two of them.
inline constexpr int kCacheLine = 64;

template <class T>
struct ColumnOf {
  T values[kRowsAtOnce];
};
template <class Compute, class Store>
struct StoredColumn {
  using Type = ColumnOf<typename Store::Type>;
};
template <class Compute, class T, OverRows kOver, int kM2>
struct StoredColumn<Compute, ColumnsStore<T, kOver, kM2>> {
  using Type = ColumnOf<Compute>;  // a block of rows is reduced before its result is converted
};
template <class Compute, class List>
struct Columns;
template <class Compute, class... T>
struct Columns<Compute, Types<T...>> {
  using Loaded = Pack<ColumnOf<typename T::Type>...>;
  using Stored = Pack<typename StoredColumn<Compute, T>::Type...>;
};

/// One column of each tensor for a block of rows, and the numbers of these rows.
template <class Body>
struct ShortRowArrays {
  typename Columns<typename Body::Compute, typename Body::Loads>::Loaded loads;
  typename Columns<typename Body::Compute, typename Body::Stores>::Stored stores;
  typename Body::template SeveralRows<kRowsAtOnce> numbers;
};

template <class Body>
struct AtShortRow;

/// A block of rows. The arrays are another variable, as in Reducer.
template <class Body>
struct ShortRows {
  const Rows& of;
  ShortRowArrays<Body>& arrays;
  const typename Body::Compute* scalars;
  long first, count;

  HC_DEVICE_MEMBER typename Body::Row numbers_of(long row) const { return arrays.numbers.get(AtShortRow<Body>{*this, row}, row); }

  /// The loops that copy stay scalar: with strides, vectors gain nothing and take long to compile.
  template <int... kLoad>
  HC_DEVICE_MEMBER void copy_in(long column, Indices<kLoad...>) const {
    if constexpr (sizeof...(kLoad) > 0) {
#pragma clang loop vectorize(disable) unroll(disable)
      for (long row = 0; row < count; ++row) {
        ((get<kLoad>(arrays.loads).values[row] = reinterpret_cast<const LoadType<Body, kLoad>*>(address(of, kLoad, first + row))[column]),
         ...);
      }
    }
  }
  template <int... kStore>
  HC_DEVICE_MEMBER void copy_out(long column, Indices<kStore...>) const {
    if constexpr (sizeof...(kStore) > 0) {
#pragma clang loop vectorize(disable) unroll(disable)
      for (long row = 0; row < count; ++row) {
        ((reinterpret_cast<typename StoreOf<Body, kStore>::Type*>(address(of, kLoads<Body> + kStore, first + row))[column] =
              get<kStore>(arrays.stores).values[row]),
         ...);
      }
    }
  }
};

/// As AtRow, of the row `row` of a block.
template <class Body>
struct AtShortRow {
  const ShortRows<Body>& rows;
  long row;

  HC_DEVICE_MEMBER auto scalar(int number) const { return rows.scalars[number]; }
  template <int kLoad>
  HC_DEVICE_MEMBER LoadType<Body, kLoad> load(Index<kLoad>) const {
    return get<kLoad>(rows.arrays.loads).values[row];
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void store(Index<kStore>, T value) const {
    get<kStore>(rows.arrays.stores).values[row] = value;
  }
};

/// The numbers of each row of a block.
template <class Reductions>
struct LanesOf;
template <class... Reduction>
struct LanesOf<Types<Reduction...>> {
  Pack<typename Reduction::template Lanes<kRowsAtOnce>...> lanes;

  template <int... kReduction>
  HC_DEVICE_MEMBER void clear(long row, Indices<kReduction...>) {
    (get<kReduction>(lanes).clear(row), ...);
  }
};

template <class Body, int kMostColumns>
struct KeptColumns {
  typename Body::Compute values[Body::kKept + 1][kMostColumns * kRowsAtOnce];
};

/// As RowElement, of column i. There is one segment, and results do not go to leaves.
template <class Body, class Pass, class Kept>
struct ShortRowElement : AtShortRow<Body> {
  using T = typename Body::Compute;
  static constexpr bool kNear = false;
  LanesOf<typename Pass::Reductions>& reductions;
  Kept& kept_columns;
  long i;

  HC_DEVICE_MEMBER long column() const { return i; }
  template <int kSlot>
  HC_DEVICE_MEMBER T kept(Index<kSlot>) const {
    return kept_columns.values[kSlot][i * kRowsAtOnce + this->row];
  }
  template <int kSlot>
  HC_DEVICE_MEMBER void keep(Index<kSlot>, T value) const {
    kept_columns.values[kSlot][i * kRowsAtOnce + this->row] = value;
  }
  template <int kReduction>
  HC_DEVICE_MEMBER void reduce(Index<kReduction>, T value) const {
    get<kReduction>(reductions.lanes).add(this->row, i, value);
  }
  template <int kStore>
  HC_DEVICE_MEMBER void add_to_column(Index<kStore>, T value) const {
    get<kStore>(this->rows.arrays.stores).values[this->row] = value;  // add_columns() reduces them
  }
};

template <class Pass>
struct AtShortEnd {
  const LanesOf<typename Pass::Reductions>& reductions;
  long row;
  template <int kReduction>
  HC_DEVICE_MEMBER auto reduced(Index<kReduction>) const {
    return get<kReduction>(reductions.lanes).get(row);
  }
};

/// Adds the values of a block of rows to column `column` of a result over rows.
template <class Body, int kStore>
HC_DEVICE void add_column(const ShortRows<Body>& rows, long column) {
  using T = typename Body::Compute;
  constexpr OverRows kOver = StoreOf<Body, kStore>::kOver;
  const T* const values = get<kStore>(rows.arrays.stores).values;
  T part = T(0);
  if constexpr (kOver == OverRows::Sum) {
    for (long row = 0; row < rows.count; ++row) add_part(part, values[row]);
  } else if constexpr (kOver == OverRows::Max) {
    part = max_of<T>(values, rows.count);
  } else {
    part = min_of<T>(values, rows.count);
  }
  T& to = reinterpret_cast<T*>(rows.of.pointers[kLoads<Body> + kStore])[column];
  to = combine<kOver>(to, part);
}
template <class Body, int... kStore>
HC_DEVICE void add_columns(const ShortRows<Body>& rows, long column, Indices<kStore...>) {
  (add_column<Body, kStore>(rows, column), ...);
}

template <class Body, class Pass, class Kept>
HC_DEVICE void run_short_pass(const ShortRows<Body>& rows, Kept& kept) {
  alignas(kCacheLine) LanesOf<typename Pass::Reductions> reductions;
  for (long row = 0; row < rows.count; ++row) reductions.clear(row, Below<Pass::Reductions::kCount>());
  for (long i = 0; i < rows.of.columns; ++i) {
    rows.copy_in(i, typename Pass::Loads());
#pragma clang loop vectorize(assume_safety) interleave_count(1)
    for (long row = 0; row < rows.count; ++row) {
      Pass::element(rows.numbers_of(row), ShortRowElement<Body, Pass, Kept>{{rows, row}, reductions, kept, i});
    }
    rows.copy_out(i, typename Pass::Stores());
    add_columns(rows, i, typename Pass::Columns());
  }
#pragma clang loop vectorize(assume_safety) interleave_count(1)
  for (long row = 0; row < rows.count; ++row) {
    typename Body::Row numbers = rows.numbers_of(row);
    Pass::end(numbers, AtShortEnd<Pass>{reductions, row});
    rows.arrays.numbers.set(numbers, row);
  }
}
template <class Body, class Kept, class... Pass>
HC_DEVICE void run_short_passes(const ShortRows<Body>& rows, Kept& kept, Types<Pass...>) {
  (run_short_pass<Body, Pass>(rows, kept), ...);
}

/// Rows with one segment of at most kMostColumns columns.
template <class Body, int kMostColumns>
HC_DEVICE void run_short_rows(const Rows& of) {
  typename Body::Compute scalars[Body::kScalars + 1];  // an array has at least one element
  for (int i = 0; i < Body::kScalars; ++i) scalars[i] = (typename Body::Compute)of.scalars[i];
  alignas(kCacheLine) ShortRowArrays<Body> arrays;
  alignas(kCacheLine) KeptColumns<Body, kMostColumns> kept;
  ShortRows<Body> rows = {of, arrays, scalars, 0, 0};
  for (rows.first = 0; rows.first < of.rows; rows.first += kRowsAtOnce) {
    rows.count = of.rows - rows.first < kRowsAtOnce ? of.rows - rows.first : kRowsAtOnce;
    rows.copy_in(0, typename Body::RowLoads());
#pragma clang loop vectorize(assume_safety) interleave_count(1)
    for (long row = 0; row < rows.count; ++row) {
      typename Body::Row numbers;
      Body::begin(numbers, AtShortRow<Body>{rows, row});
      rows.arrays.numbers.set(numbers, row);
    }
    run_short_passes(rows, kept, typename Body::Passes());
    if constexpr (!is_same<typename Body::RowStores, Indices<>>) {
#pragma clang loop vectorize(assume_safety) interleave_count(1)
      for (long row = 0; row < rows.count; ++row) Body::end(rows.numbers_of(row), AtShortRow<Body>{rows, row});
      rows.copy_out(0, typename Body::RowStores());
    }
  }
}

template <class Body, int kMostColumns>
HC_DEVICE void run_rows_of_any_length(Rows rows) {
  if (rows.segments == 1 && rows.columns <= kMostColumns) return run_short_rows<Body, kMostColumns>(rows);
  run_rows<Body, false>(rows);
}

}  // namespace hindcast::device::cpu
