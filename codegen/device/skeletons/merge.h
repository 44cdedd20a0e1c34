#pragma once
// Merges the slices' numbers of results over rows. blockIdx.y is the number of such a result, a pair of moments counting once.

#include "codegen/device/skeletons/row_operands.h"

#if HC_CUDA
namespace hindcast::device {

template <class Body>
using Merge = MergeArguments<kStores<Body>>;

inline constexpr int kSlicesTogether = 16;

template <class Store>
inline constexpr bool kIsOverRows = kIsOfColumns<Store> || kIsOfChannels<Store>;

/// The results over rows before this store, as blockIdx.y counts them.
template <class Body, int kStore>
constexpr int merges_before() {
  int count = 0;
  if constexpr (kStore > 0) count = merges_before<Body, kStore - 1>() + (kIsOverRows<StoreAt<Body, kStore - 1>> ? 1 : 0);
  return count;
}

template <class Body, int kStore>
HC_DEVICE void merge_moments(const Merge<Body>& arguments, int64 at) {
  using T = typename Body::Compute;
  constexpr bool kHasM2 = StoreAt<Body, kStore>::kM2 >= 0;
  constexpr int kM2 = kHasM2 ? StoreAt<Body, kStore>::kM2 : kStore;
  const auto partial = [&](int store, int64 slice) {
    return reinterpret_cast<const T*>(arguments.partials[store] + slice * arguments.stores[store].partial_bytes)[at];
  };
  const auto put = [&](auto store, T value) {
    using Result = typename StoreAt<Body, store>::Type;
    put_result(reinterpret_cast<Result*>(arguments.results[store]) + at, convert<Result>(value), arguments.adds >> store & 1);
  };
  MomentsFrom<T> all[1] = {{0, T(0), T(0), T(0)}};
  for (int64 slice = threadIdx.y; at < arguments.stores[kStore].count && slice < arguments.slices; slice += kTileRows) {
    const int64 rows = rows_of_slice(arguments.rows, arguments.slices, arguments.rows_at_once, slice);
    const MomentsFrom<T> one = {T(rows), T(0), partial(kStore, slice), kHasM2 ? partial(kM2, slice) : T(0)};
    all[0] = Merges<MomentsFrom<T>>()(all[0], one);
  }
  over_rows_of_block(all, Merges<MomentsFrom<T>>());
  if (threadIdx.y != 0 || at >= arguments.stores[kStore].count) return;
  put(Index<kStore>(), mean_of(all[0]));
  if constexpr (kHasM2) put(Index<kM2>(), all[0].m2);
}

/// Reads several numbers at a time, then combines them in order.
template <class Body, int kStore>
HC_DEVICE void merge_numbers(const Merge<Body>& arguments, int64 at) {
  using T = typename Body::Compute;
  using Over = OverRowsOf<Body, kStore>;
  using Result = typename StoreAt<Body, kStore>::Type;
  T all[1] = {Over::none()};
  for (int64 slice = threadIdx.y; at < arguments.stores[kStore].count && slice < arguments.slices; slice += kTileRows * kSlicesTogether) {
    T some[kSlicesTogether];
#pragma unroll
    for (int k = 0; k < kSlicesTogether; ++k) {
      const int64 one = slice + k * kTileRows;
      const char* const from = arguments.partials[kStore] + one * arguments.stores[kStore].partial_bytes;
      some[k] = one < arguments.slices ? reinterpret_cast<const T*>(from)[at] : Over::none();
    }
#pragma unroll
    for (int k = 0; k < kSlicesTogether; ++k) all[0] = typename Over::Combine()(all[0], some[k]);
  }
  over_rows_of_block(all, typename Over::Combine());
  if (threadIdx.y != 0 || at >= arguments.stores[kStore].count) return;
  put_result(reinterpret_cast<Result*>(arguments.results[kStore]) + at, convert<Result>(all[0]), arguments.adds >> kStore & 1);
}

/// Each thread has every kTileRows-th slice.
template <class Body>
HC_DEVICE void run_merge(const Merge<Body>& arguments) {
  const int64 at = int64(blockIdx.x) * kTile + threadIdx.x;
  for_each_below<kStores<Body>>([&](auto i) {
    using Store = StoreAt<Body, i>;
    if constexpr (kIsOverRows<Store>) {
      if (blockIdx.y != merges_before<Body, i>()) return;
      if constexpr (Store::kOver == OverRows::Mean) {
        merge_moments<Body, i>(arguments, at);
      } else if constexpr (Store::kOver != OverRows::M2) {
        merge_numbers<Body, i>(arguments, at);
      }
    }
  });
}

}  // namespace hindcast::device
#endif
