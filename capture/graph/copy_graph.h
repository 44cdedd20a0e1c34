#pragma once

#include "hindcast/graph.h"

#include <memory>

namespace hindcast::capture {

/// A deep copy of the graph, symbols and lists included, in memory that the calling thread allocates.
///
/// A capture is long-lived, but is made while the tensors of a step come and go. Thousands of small blocks among them keep malloc from
/// reusing the place of a large tensor, so a program whose structures change would grow by tensors and not by graphs. Another thread
/// allocates elsewhere: glibc has a heap for each of a few threads.
std::shared_ptr<const Graph> copy_of(const Graph& graph);

/// The same graph with symbols of its own, for a thread that adds some. Values and instrs are shared.
std::shared_ptr<const Graph> sharing_copy_of(const Graph& graph);

}  // namespace hindcast::capture
