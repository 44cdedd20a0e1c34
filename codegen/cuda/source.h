#pragma once
// The text of a body's kernels for CUDA. Every kernel has one parameter, a struct of words of 8 bytes: first the pointers to loads and
// stores, then the scalars, then what its kind has (arguments.h writes it).
//
// A body without rows has these kernels, which differ in how tensors may lie:
//
//   dense       along with the results, or as one element for all. Leaves are written too. Accesses of 16 bytes, several in flight
//   dense_few   as dense, for few elements: one access in flight a thread, so that there are more threads
//   dense_each  as dense, element by element: for pointers that are not aligned
//   nest        in loops around the innermost, along which they lie as dense's do. Accesses of 16 bytes
//   nest_each   in loops, in any way, and with zeros around them
//   nest_any    as nest_each, for 2^31 elements and more; and in the place of each of these while it is not compiled. Leaves are written too
//   tiles       in loops; those loads that lie along another loop than the results are read through shared memory
//
// A body of sets has these alone (Body::of_sets):
//
//   sets        as dense, on several sets of tensors: a block finds its set in the argument
//   sets_each   as dense_each
//
// for one by rows: row_source.h.
//
// Not all of them are compiled at once (kernels.h): a text may have some alone.

#include "codegen/cuda/entry.h"
#include "codegen/fuse/body.h"

#include <string>

namespace hindcast::codegen::cuda {

/// Elements that go together: 16 bytes of the narrowest type, and so some accesses of a wider one.
int vector_length(const Body& body);
/// Accesses of one load that a thread has in flight, in `dense`, or in `rows` where the row stays in registers.
int items_in_flight(const Body& body);
/// Vectors per thread in `nest`, at most.
int items_of_nest(const Body& body);
/// Elements that a thread has in flight where accesses are of one each.
int elements_one_by_one(const Body& body);
/// Threads of a block of a kernel by rows, at most: fewer where a thread of the body takes more registers than so many threads have.
int most_threads_of_row(const Body& body);

/// Sets of tensors that one launch takes: as many as an argument of 4 KiB has room for.
int sets_of_launch(const Body& body);

/// All that the body has.
Entries entries_of(const Body& body);
/// What is compiled first: some one of these takes whatever call there is, and common calls have the best for them.
Entries first_entries_of(const Body& body);

/// With these entry points of the body's.
std::string source_of(const Body& body, Entries entries);
/// With all.
std::string source_of(const Body& body);

}  // namespace hindcast::codegen::cuda
