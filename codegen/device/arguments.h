#pragma once
// The argument of each kind of CUDA kernel: one struct, whose parts the host fills by name (codegen/cuda). Every member is made of words of
// 8 bytes, so the compilers of both sides give it the same layout. The parts are, in this order: addresses, scalars, numbers of the launch,
// numbers per tensor.

#include "codegen/device/indexing.h"

namespace hindcast::device {

/// The addresses of loads, stores, then two per leaf: its sum, and the term that is added. Null if nothing reads the sum, or if there is no
/// term at all.
template <int kPointers>
struct Addresses {
  char* pointers[kPointers];
};

/// A number of the compute type in the first bytes of each word (`Scalar`).
template <int kScalars>
struct Scalars {
  uint64 scalars[kScalars];
};
template <>
struct Scalars<0> {
  static constexpr const uint64* scalars = nullptr;
};

struct DenseLaunch {
  int64 count;  // elements
};
template <int kPointers, int kScalars>
struct DenseArguments : Addresses<kPointers>, Scalars<kScalars>, DenseLaunch {};

/// Loops, outermost first. A piece is an element or a vector, which the innermost loop counts.
struct NestLaunch {
  int64 pieces, loops;
  int64 is_padded;  // some loads have zeros around them
  int64 items;      // pieces per thread, adjacent in the loop around the innermost
  Divider sizes[kMostLoops];
};
struct NestTensor {
  int64 item_stride;  // bytes from one piece of a thread to the next
  int64 strides[kMostLoops];
};
/// The indices at which a load has elements.
struct NestSpans {
  int64 first[kMostLoops], end[kMostLoops];
};
template <int kPointers, int kScalars, int kTensors, int kLoads>
struct NestArguments : Addresses<kPointers>, Scalars<kScalars>, NestLaunch {
  NestTensor tensors[kTensors];
  NestSpans spans[kAtLeastOne<kLoads>];
};

struct TilesLaunch {
  uint64 transposed;  // loads, a bit each
  int64 rows, columns, loops;
  Divider row_tiles, column_tiles;
  Divider sizes[kMostLoops];  // of the loops around rows and columns
};
struct TilesTensor {
  int64 row_stride, column_stride, strides[kMostLoops];  // bytes
  int64 in_shared;                                       // the offset of a transposed load's tile in shared memory
};
template <int kPointers, int kScalars, int kTensors>
struct TilesArguments : Addresses<kPointers>, Scalars<kScalars>, TilesLaunch {
  TilesTensor tensors[kTensors];
};

/// A launch over several sets of tensors, at most kMost.
template <int kMost, int kScalars, int kTensors>
struct SetsArguments : Scalars<kScalars> {
  int64 sets, counts[kMost], blocks_before[kMost];
  char* pointers[kMost][kTensors];
};

struct RowsLaunch {
  int64 rows, segments, columns;  // columns: of a segment
  Divider pieces_of_segment;
  int64 loops;  // around the rows, outermost first
  Divider sizes[kMostLoops];
  int64 is_whole;                       // the only slice is the result
  int64 pass, splits, pieces_of_split;  // of rows that several blocks share
  int64 kept_bytes, kept_sums;          // of shared memory, per row; sums of columns that are kept there
  uint64 adds;                          // results that are added to what is there, a bit each
};
struct RowsTensor {
  int64 row_strides[kMostLoops], segment_stride;  // bytes
};
/// Of a result over rows.
struct RowsStore {
  int64 partial_bytes, count;  // from slice to slice; numbers of a slice
};
template <int kPointers, int kScalars, int kTensors, int kStores>
struct RowsArguments : Addresses<kPointers>, Scalars<kScalars>, RowsLaunch {
  RowsTensor tensors[kTensors];
  RowsStore stores[kAtLeastOne<kStores>];
  char* numbers;  // scratch memory of blocks that share a row
};

struct MergeLaunch {
  int64 slices, rows, rows_at_once;  // rows_at_once: consecutive rows of a slice
  uint64 adds;                       // results that are added to what is there, a bit each
};
struct MergeStore {
  int64 count, partial_bytes;
};
/// By store; null for stores that are not over rows.
template <int kStores>
struct MergeAddresses {
  char *partials[kStores], *results[kStores];
};
template <int kStores>
struct MergeArguments : MergeAddresses<kStores>, MergeLaunch {
  MergeStore stores[kStores];
};

}  // namespace hindcast::device
