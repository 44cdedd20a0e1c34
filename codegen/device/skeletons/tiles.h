#pragma once
// A loop nest with transposed loads: contiguous along another loop than the results. A block computes a tile: kTile iterations of the
// innermost loop (columns) by kTile iterations of the loop along which the transposed loads are contiguous (rows). It reads these loads
// along the rows and transposes them in shared memory, where a row is one element longer, so that the elements of a column are in different
// banks.

#include "codegen/device/skeletons/nest.h"

#if HC_CUDA
namespace hindcast::device {

template <class Body>
using Tiles = TilesArguments<kPointers<Body>, Body::kScalars, kTensors<Body>>;

/// `load_element(Index<load>())`: from the tile in shared memory or from the tensor.
template <class Body, class LoadElement>
struct TileElement : ScalarWords<Body> {
  const LoadElement& load_element;
  ResultVectors<Body, 1>& results;

  template <int kLoad>
  HC_DEVICE_MEMBER typename LoadAt<Body, kLoad>::Type load(Index<kLoad> number) const {
    return load_element(number);
  }
  template <int kStore, class T>
  HC_DEVICE_MEMBER void store(Index<kStore>, T value) const {
    get<kStore>(results).set(0, value);
  }
};

template <class Body>
HC_DEVICE void run_tiles(const Tiles<Body>& arguments) {
  const auto is_transposed = [&](int load) { return (arguments.transposed >> load & 1) != 0; };
  const uint32 tile_row = divide(blockIdx.x, arguments.column_tiles);
  const int64 first_column = int64(blockIdx.x - tile_row * arguments.column_tiles.divisor) * kTile;
  const uint32 around = divide(tile_row, arguments.row_tiles);
  const int64 first_row = int64(tile_row - around * arguments.row_tiles.divisor) * kTile;
  Offsets<kTensors<Body>> offsets;
  for_each_loop(around, static_cast<const TilesLaunch&>(arguments),
                [&](int loop, int64 index) { offsets.step(arguments.tensors, loop, index); });
  const auto bytes = [&](int tensor, int row, int column) {
    const TilesTensor& along = arguments.tensors[tensor];
    return offsets.to[tensor] + (first_row + row) * along.row_stride + (first_column + column) * along.column_stride;
  };
  const int x = threadIdx.x, rows = min(int64(kTile), arguments.rows - first_row);
  const int columns = min(int64(kTile), arguments.columns - first_column);
  for_each_below<kLoads<Body>>([&](auto i) {
    using T = typename LoadAt<Body, i>::Type;
    if constexpr (!LoadAt<Body, i>::kIsBroadcast) {
      T* const tile = reinterpret_cast<T*>(smem + arguments.tensors[i].in_shared);
      if (!is_transposed(i)) return;
      for (int y = threadIdx.y; y < columns; y += kTileRows) {
        if (x < rows) tile[y * (kTile + 1) + x] = *reinterpret_cast<const T*>(arguments.pointers[i] + bytes(i, x, y));
      }
    }
  });
  __syncthreads();
  if (x >= columns) return;
  for (int y = threadIdx.y; y < rows; y += kTileRows) {
    const auto load_element = [&](auto i) {
      using T = typename LoadAt<Body, i>::Type;
      if constexpr (!LoadAt<Body, i>::kIsBroadcast) {
        if (is_transposed(i)) return reinterpret_cast<const T*>(smem + arguments.tensors[i].in_shared)[x * (kTile + 1) + y];
      }
      return *reinterpret_cast<const T*>(arguments.pointers[i] + bytes(i, y, x));
    };
    ResultVectors<Body, 1> results;
    Body::element(TileElement<Body, decltype(load_element)>{{arguments.scalars}, load_element, results});
    store_results<Body, 1>(arguments.pointers, results, [&](auto i) { return bytes(kLoads<Body> + i, y, x); });
  }
}

}  // namespace hindcast::device
#endif
