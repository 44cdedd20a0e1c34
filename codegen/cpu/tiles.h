#pragma once
// Copies tiles of a tensor to contiguous memory.

#include <cstdint>

namespace hindcast::codegen::cpu {

/// `row_step`, `column_step`: byte strides in the tensor. `pitch`: elements from one row to the next in the copy.
struct Tile {
  int64_t rows, columns, row_step, column_step, pitch;
};

/// The rows and columns of a tile that a padded tensor has elements for; the rest of the tile is zeros.
struct TilePart {
  int64_t first_row, end_row, first_column, end_column;
  bool is_empty() const { return first_row >= end_row || first_column >= end_column; }
  bool is_all_of(const Tile& tile) const {
    return first_row == 0 && first_column == 0 && end_row == tile.rows && end_column == tile.columns;
  }
};

/// `from`: the address of the tile's first element, even if that is in the padding. `width`: bytes of an element.
void copy_tile(char* to, const char* from, const Tile& tile, const TilePart& part, int64_t width);

}  // namespace hindcast::codegen::cpu
