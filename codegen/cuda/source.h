#pragma once
// The text of a body's kernels for CUDA. Every kernel has one parameter, a struct of words of 8 bytes: first the pointers to loads and
// stores, then the scalars, then fields specific to the kind of kernel (written by arguments.h).
//
// A body without rows has these kernels, which differ in the layouts they support:
//
//   dense       loads have the results' layout, or are one broadcast element. Also writes leaves. Accesses of 16 bytes, several in flight
//   dense_few   as dense, for few elements: one access in flight per thread, so that there are more threads
//   dense_each  as dense, element by element: for pointers that are not aligned
//   nest        a loop nest; along the innermost loop, loads are as in dense. Accesses of 16 bytes
//   nest_each   a loop nest with any strides and padding
//   nest_any    as nest_each, for 2^31 elements and more; the substitute for all of these while they are not compiled. Also writes leaves
//   tiles       a loop nest; loads that are contiguous along another loop than the results are read through shared memory
//
// A body of sets (Body::of_sets) has only these:
//
//   sets        as dense, on several sets of tensors: a block finds its set in the argument
//   sets_each   as dense_each
//
// For a body by rows see row_source.h.
//
// Not all of them are compiled at once (kernels.h): a text may contain only some.

#include "codegen/cuda/entry.h"
#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cuda {

/// Elements per vector: 16 bytes of the narrowest type, and so several accesses of a wider one.
int vector_length(const Body& body);
/// Accesses of one load in flight per thread, in `dense`, or in `rows`, which keeps the row in registers.
int items_in_flight(const Body& body);
/// Largest number of vectors per thread in `nest`.
int items_of_nest(const Body& body);
/// Elements in flight per thread if each access is of one element.
int elements_one_by_one(const Body& body);
/// Largest number of threads per block of a row kernel: smaller if a thread of this body needs more registers than are available to each of
/// so many threads.
int most_threads_of_row(const Body& body);

/// Sets of tensors per launch: as many as fit into an argument of 4 KiB.
int sets_of_launch(const Body& body);

/// All entry points of the body.
Entries entries_of(const Body& body);
/// The entry points that are compiled first: together they can handle any call, and common calls have the best one for them.
Entries first_entries_of(const Body& body);

/// The text with these entry points.
std::string source_of(const Body& body, Entries entries);
/// The text with all entry points.
std::string source_of(const Body& body);

}  // namespace hindcast::codegen::cuda
