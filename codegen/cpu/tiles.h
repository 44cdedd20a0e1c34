#pragma once
// Pieces of a tensor copied to where their elements lie side by side.

#include <cstdint>

namespace hindcast::codegen::cpu {

/// `pitch`: elements from one row to the next where the tile is copied to. Steps in bytes.
struct Tile {
  int64_t rows, columns, row_step, column_step, pitch;
};

/// Rows and columns of a tile that a tensor has; it has zeros in all others.
struct TilePart {
  int64_t first_row, end_row, first_column, end_column;
  bool is_empty() const { return first_row >= end_row || first_column >= end_column; }
  bool is_all_of(const Tile& tile) const {
    return first_row == 0 && first_column == 0 && end_row == tile.rows && end_column == tile.columns;
  }
};

/// `from`: where the tile's first element is, or would be. `width`: bytes of an element.
void copy_tile(char* to, const char* from, const Tile& tile, const TilePart& part, int64_t width);

}  // namespace hindcast::codegen::cpu
