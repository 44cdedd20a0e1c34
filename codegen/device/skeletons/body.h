#pragma once
// What a skeleton knows of the body that it runs.
//
// A body is generated, one struct per kernel:
//
//   struct Body {
//     using Compute = float;  // the type of the arithmetic
//     using Real = float;     // of the scalars: Compute, or of its parts if it is complex
//     using Loads = Types<Load<float>, Load<bfloat16, Along::Broadcast>>;
//     using Stores = Types<Store<float>>;
//     static constexpr int kScalars = 1;
//     template <class At>
//     static HC_DEVICE_MEMBER void element(const At& at);  // computes one element
//   };
//
// `at` is the skeleton's: at.scalar(i), at.load(Index<i>()) and at.store(Index<i>(), value), which read and write memory's types.
//
// A body by rows has passes instead of `element`:
//
//   struct Body {
//     ...
//     struct Row { float s0, x1, v2; };     // the numbers of a row: scalars, broadcast loads, results
//     template <class At> static void begin(Row& row, const At& at);       // those that are known before the first pass
//     template <class At> static void end(const Row& row, const At& at);   // stores numbers of the row
//     struct Pass0 {
//       using Loads = Indices<0>;      // the elements that the pass reads
//       using Stores = Indices<1>;     // the elements that it writes
//       using Columns = Indices<>;     // its sums of columns
//       using Reductions = Types<SumOf<float>>;
//       template <class At> static void element(const Row& row, const At& at);
//       template <class At> static void end(Row& row, const At& at);       // numbers that are known after the pass
//     };
//     using Passes = Types<Pass0>;
//     static constexpr int kKept;           // values per element that later passes read
//   };
//
// A pass by segments (skeletons/segments.h) has more.

#include "codegen/device/packs.h"

namespace hindcast::device {

/// How a load varies along the innermost loop. Counts: each element is one more than the one before it. PerSegment: one number per segment
/// of a row.
enum class Along { Dense, Broadcast, Counts, PerSegment };

/// A tensor that the body reads, with elements of T in memory.
template <class T, Along kAlong = Along::Dense>
struct Load {
  using Type = T;
  static constexpr bool kIsBroadcast = kAlong == Along::Broadcast, kCounts = kAlong == Along::Counts;
  static constexpr bool kHasElements = kAlong == Along::Dense || kAlong == Along::Counts;
};
/// A result. `kLeaves`: leaves whose gradients the kernel may write together with it.
template <class T, int kLeafCount = 0>
struct Store {
  using Type = T;
  static constexpr int kLeaves = kLeafCount;
};

template <class Body>
inline constexpr int kLoads = Body::Loads::kCount;
template <class Body>
inline constexpr int kStores = Body::Stores::kCount;
template <class Body>
inline constexpr int kTensors = kLoads<Body> + kStores<Body>;
template <class Body, int kLoad>
using LoadAt = At<kLoad, typename Body::Loads>;
template <class Body, int kStore>
using StoreAt = At<kStore, typename Body::Stores>;

/// The leaves of all stores before this one.
template <class Body, int kStore>
inline constexpr int kFirstLeaf = kFirstLeaf<Body, kStore - 1> + StoreAt<Body, kStore - 1>::kLeaves;
template <class Body>
inline constexpr int kFirstLeaf<Body, 0> = 0;
template <class Body>
inline constexpr int kPointers = kTensors<Body> + 2 * kFirstLeaf<Body, kStores<Body>>;

template <class Body>
inline constexpr int kPasses = Body::Passes::kCount;
template <class Body, int kPass>
using PassAt = At<kPass, typename Body::Passes>;

/// A result of one number per row.
template <class T>
struct RowStore {
  using Type = T;
  static constexpr int kLeaves = 0;
};
/// Reductions over all rows. Mean: with the M2 of the same value, at index kM2 of the stores if there is one, which Mean computes too.
enum class OverRows { Sum, Max, Min, Mean, M2 };
template <class T, OverRows kReduction, int kM2Store = -1>
struct ColumnsStore {
  using Type = T;
  static constexpr int kLeaves = 0;
  static constexpr OverRows kOver = kReduction;
  static constexpr int kM2 = kM2Store;
};
/// One number per channel.
template <class T, OverRows kReduction>
struct ChannelsStore {
  using Type = T;
  static constexpr int kLeaves = 0;
  static constexpr OverRows kOver = kReduction;
};

template <class Store>
inline constexpr bool kIsOfElements = false;
template <class T, int kLeaves>
inline constexpr bool kIsOfElements<Store<T, kLeaves>> = true;
template <class Store>
inline constexpr bool kIsOfColumns = false;
template <class T, OverRows kOver, int kM2>
inline constexpr bool kIsOfColumns<ColumnsStore<T, kOver, kM2>> = true;
template <class Store>
inline constexpr bool kIsOfChannels = false;
template <class T, OverRows kOver>
inline constexpr bool kIsOfChannels<ChannelsStore<T, kOver>> = true;
template <class Store>
inline constexpr bool kIsOfMoments = false;
template <class T, OverRows kOver, int kM2>
inline constexpr bool kIsOfMoments<ColumnsStore<T, kOver, kM2>> = kOver == OverRows::Mean || kOver == OverRows::M2;

template <class Body, int... kNumbers>
constexpr bool has_moments_over_rows(Indices<kNumbers...>) {
  return (kIsOfMoments<StoreAt<Body, kNumbers>> || ...);
}
template <class Body>
inline constexpr bool kHasMomentsOverRows = has_moments_over_rows<Body>(Below<kStores<Body>>());

}  // namespace hindcast::device
