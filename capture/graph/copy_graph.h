#pragma once

#include "capture/graph/graph.h"

#include <memory>

namespace hindcast::capture {

/// The same graph in memory of the thread that calls it, symbols and lists included.
///
/// A capture lasts; it is made while the tensors of a step come and go. Thousands of small blocks among them keep malloc from
/// giving the place of a large tensor to the next one, and a program whose structures change grows by tensors and not by
/// graphs. Another thread's blocks lie elsewhere: glibc has a heap for each of a few threads.
std::shared_ptr<const Graph> copy_of(const Graph& graph);

/// The same graph with symbols of its own, for a thread that adds some. Values and instrs are shared.
std::shared_ptr<const Graph> sharing_copy_of(const Graph& graph);

}  // namespace hindcast::capture
