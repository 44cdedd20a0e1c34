#pragma once
// The argument of each kind of CPU kernel: the host fills it by name (codegen/cpu), and the kernel gets its address.

namespace hindcast::device {

/// `dense`: contiguous elements.
struct LoopArguments {
  char* const* pointers;  // the first elements: of loads, then of stores; of a body with a product, then of the product
  const double* scalars;
  long count;  // elements
};

/// Elements that a loop processes before it looks at the next angles, and that a sum adds before it is added to a larger one.
inline constexpr long kBlockLength = 1024;

/// `leaves`: as LoopArguments. Results are also written to leaves.
struct LeavesArguments {
  char* const* pointers;  // after the stores, two per leaf of each store: the sum, and the term that is added to the value
  const double* scalars;
  long count;
  const long* is_block;  // by pointer from the stores on: 1 if it is not to a tensor but to kBlockLength elements, which all blocks use
};

/// `rows`, and `leaves` of a body by rows: a row has segments of contiguous elements.
struct RowLoopArguments {
  char* const* pointers;  // of LeavesArguments; one that is not to a tensor has the elements of one segment, with strides of 0
  const double* scalars;
  long rows;
  const long* row_strides;  // bytes, by pointer
  long segments;            // of a row
  const long* segment_strides;
  long columns;  // elements of a segment
  char* kept;    // what later passes read (codegen/cpu/source.h)
};

/// `product`: some rows of a matrix product, and of what the body computes from it.
struct ProductArguments {
  const void* blocks;  // a ProductBlocks (products.h)
  const void* a;
  const void* b;
  long a_step, b_step;  // elements from one row to the next in memory
  long depth, columns;
  long begin, end;        // rows
  char* const* pointers;  // of LoopArguments
  const long* row_strides;
  const double* scalars;
  char* scratch;  // memory for a panel
};

}  // namespace hindcast::device
