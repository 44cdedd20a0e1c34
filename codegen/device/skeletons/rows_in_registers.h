#pragma once
// Rows that a block's threads keep in registers: blockDim.y rows at a time, of blockDim.x threads each, with kItems vectors per thread. A
// row that several blocks have (gridDim.y) has no reductions but those over rows.

#include "codegen/device/skeletons/row_operands.h"

#if HC_CUDA
namespace hindcast::device {

/// Sums of columns in a thread's registers, of one of its vectors.
template <class Body, int kVector>
struct SumsInRegisters {
  using T = typename Body::Compute;
  T (&values)[kStores<Body>][kVector];
  T share;  // 1 divided by the number of rows so far

  static constexpr bool is_first() { return false; }
  template <int kStore>
  HC_DEVICE_MEMBER T get(Index<kStore>, int j) const {
    return values[kStore][j];
  }
  template <int kStore>
  HC_DEVICE_MEMBER void set(Index<kStore>, int j, T value) const {
    values[kStore][j] = value;
  }
};

/// Combines the rows of a block into one slice. If there is only one slice, it is the result.
template <class Body, int kVector, int kItems>
HC_DEVICE void store_columns(const Rows<Body>& arguments, typename Body::Compute (&sums)[kItems][kStores<Body>][kVector], int seen,
                             uint32 first_piece, uint32 pieces) {
  using T = typename Body::Compute;
  for_each_below<kStores<Body>>([&](auto i) {
    constexpr int kStore = i;
    using Store = StoreAt<Body, kStore>;
    if constexpr (kIsOfColumns<Store>) {
      if constexpr (Store::kOver != OverRows::M2) {
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
          const uint32 piece = first_piece + k * blockDim.x;
          const auto put = [&](auto store, int j, T value) {
            using Result = typename StoreAt<Body, store>::Type;
            store_result<Result>(arguments.pointers[kLoads<Body> + store], arguments.stores[store].partial_bytes, arguments.is_whole,
                                 arguments.adds >> store & 1, int64(piece) * kVector + j, value);
          };
          if constexpr (Store::kOver == OverRows::Mean) {
            constexpr bool kHasM2 = Store::kM2 >= 0;
            constexpr int kM2 = kHasM2 ? Store::kM2 : kStore;
            MomentsFrom<T> moments[kVector];
#pragma unroll
            for (int j = 0; j < kVector; ++j) moments[j] = {T(seen), T(0), sums[k][kStore][j], kHasM2 ? sums[k][kM2][j] : T(0)};
            over_rows_of_block(moments, Merges<MomentsFrom<T>>());
            if (threadIdx.y != 0 || piece >= pieces) continue;
#pragma unroll
            for (int j = 0; j < kVector; ++j) {
              put(i, j, mean_of(moments[j]));
              if constexpr (kHasM2) put(Index<kM2>(), j, moments[j].m2);
            }
          } else {
            over_rows_of_block(sums[k][kStore], typename OverRowsOf<Body, kStore>::Combine());
            if (threadIdx.y != 0 || piece >= pieces) continue;
#pragma unroll
            for (int j = 0; j < kVector; ++j) put(i, j, sums[k][kStore][j]);
          }
        }
      }
    }
  });
}

template <class Body, int kVector, int kItems>
HC_DEVICE void clear_columns(typename Body::Compute (&sums)[kItems][kStores<Body>][kVector]) {
  for_each_below<kStores<Body>>([&](auto i) {
    if constexpr (kIsOfColumns<StoreAt<Body, i>>) {
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) sums[k][i][j] = OverRowsOf<Body, i>::none();
      }
    }
  });
}

/// A thread without a piece reads the first one and ignores it: otherwise its registers would have to preserve the previous row.
template <bool kFlat, class Body, int kVector, int kItems>
HC_DEVICE void load_row(const RowPlace<Body>& place, uint32 first_piece, uint32 pieces, RowVectors<Body, kVector> (&vectors)[kItems],
                        Index<kVector>) {
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const uint32 wanted = first_piece + k * blockDim.x;
    const auto piece = place.template piece<kFlat>(place.is_row && wanted < pieces ? wanted : uint32(0));
    for_each_below<kLoads<Body>>([&](auto i) {
      constexpr int kReaders = kPassesOf<Body, i>;
      if constexpr (LoadAt<Body, i>::kHasElements && kReaders != 0) get<i>(vectors[k]) = place.template load_piece<i, kVector>(piece);
    });
  }
}

/// Vectors and kept values are arrays of their own: as members of one struct, they take more registers than there are for a layer norm.
template <class Body, int kVector>
using KeptValues = typename Body::Compute[kAtLeastOne<Body::kKept>][kVector];

template <class Pass, bool kFlat, class Body, int kVector, int kItems>
HC_DEVICE void run_pass_in_registers(const RowPlace<Body>& place, typename Body::Row& row, typename Body::Compute share, uint32 first_piece,
                                     uint32 pieces, const RowVectors<Body, kVector> (&vectors)[kItems],
                                     KeptValues<Body, kVector> (&kept)[kItems],
                                     typename Body::Compute (&sums)[kItems][kStores<Body>][kVector], Index<kVector>) {
  using Reductions = typename Pass::Reductions;
  Numbers<Reductions> numbers;
  clear<Reductions>(numbers);
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const uint32 wanted = first_piece + k * blockDim.x;
    if (!place.is_row || wanted >= pieces) continue;
    const auto piece = place.template piece<kFlat>(wanted);
    Parts<Reductions, kVector> parts;
    RowResults<Body, kVector> results;
    SumsInRegisters<Body, kVector> of_columns = {sums[k], share};
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const AtElement<Body, uint32, RowVectors<Body, kVector>, RowResults<Body, kVector>, Parts<Reductions, kVector>,
                      KeptValues<Body, kVector>, SumsInRegisters<Body, kVector>>
          at = {place, piece, int64(wanted) * kVector, vectors[k], results, parts, kept[k], of_columns, j};
      Pass::element(row, at);
    }
    add_vector<Reductions, kVector>(numbers, parts);
    store_pass<Pass, kVector>(place, piece, results);
  }
  over_row_together<typename Body::Compute, Reductions>(numbers);
  Pass::end(row, AtEnd<Numbers<Reductions>>{numbers});
}

/// kFlat: the rows have one segment and lie in one loop, so a row's address takes fewer instructions.
template <class Body, int kVector, int kItems, bool kFlat>
HC_DEVICE void run_rows(const Rows<Body>& arguments) {
  using T = typename Body::Compute;
  constexpr Index<kVector> kLength;
  const uint32 pieces = arguments.segments * arguments.columns / kVector;
  const uint32 first_piece = blockIdx.y * (blockDim.x * kItems) + threadIdx.x;
  T sums[kItems][kStores<Body>][kVector];
  clear_columns<Body, kVector, kItems>(sums);
  const int seen = for_each_row<Body, kFlat>(arguments, [&](const RowPlace<Body>& place, typename Body::Row& numbers, T share, bool) {
    RowVectors<Body, kVector> vectors[kItems];
    KeptValues<Body, kVector> kept[kItems];
    load_row<kFlat, Body>(place, first_piece, pieces, vectors, kLength);
    for_each_below<kPasses<Body>>([&](auto pass) {
      run_pass_in_registers<PassAt<Body, pass>, kFlat, Body>(place, numbers, share, first_piece, pieces, vectors, kept, sums, kLength);
    });
  });
  store_columns<Body, kVector, kItems>(arguments, sums, seen, first_piece, pieces);
}

}  // namespace hindcast::device
#endif
