#include "codegen/cpu/tiles.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace hindcast::codegen::cpu {
namespace {

template <class T>
void gather_elements(char* to, const char* from, const Tile& tile) {
  auto* neighbours = reinterpret_cast<T*>(to);
  const auto copy = [&](int64_t row, int64_t column) {
    neighbours[row * tile.pitch + column] = *reinterpret_cast<const T*>(from + row * tile.row_step + column * tile.column_step);
  };
  // If the row stride is the smaller one, copies a few columns at a time: a cache line that is read has elements of several rows, a line
  // that is written has elements of several columns.
  const int64_t strip = std::abs(tile.row_step) < std::abs(tile.column_step) ? 8 : tile.columns;
  for (int64_t first = 0; first < tile.columns; first += strip) {
    const int64_t end = std::min(first + strip, tile.columns);
    for (int64_t row = 0; row < tile.rows; ++row) {
      for (int64_t column = first; column < end; ++column) copy(row, column);
    }
  }
}

void gather(char* to, const char* from, const Tile& tile, int64_t width) {
  if (tile.column_step == width) {
    for (int64_t row = 0; row < tile.rows; ++row)
      std::memcpy(to + row * tile.pitch * width, from + row * tile.row_step, static_cast<size_t>(tile.columns * width));
    return;
  }
  switch (width) {
    case 1:
      return gather_elements<uint8_t>(to, from, tile);
    case 2:
      return gather_elements<uint16_t>(to, from, tile);
    case 4:
      return gather_elements<uint32_t>(to, from, tile);
    case 8:
      return gather_elements<uint64_t>(to, from, tile);
    default:
      return gather_elements<std::array<uint64_t, 2>>(to, from, tile);
  }
}

}  // namespace

void copy_tile(char* to, const char* from, const Tile& tile, const TilePart& part, int64_t width) {
  if (!part.is_all_of(tile)) std::memset(to, 0, static_cast<size_t>(((tile.rows - 1) * tile.pitch + tile.columns) * width));
  if (part.is_empty()) return;
  Tile inner = tile;
  inner.rows = part.end_row - part.first_row;
  inner.columns = part.end_column - part.first_column;
  gather(to + (part.first_row * tile.pitch + part.first_column) * width,
         from + part.first_row * tile.row_step + part.first_column * tile.column_step, inner, width);
}

}  // namespace hindcast::codegen::cpu
