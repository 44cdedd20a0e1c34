#pragma once

#include <string>

namespace hindcast::bench::gpu {

/// Prints, as a table in Markdown, what of each row's backward is known without a card: launches, bytes, and what the kernels' code needs.
/// Installs a card that runs nothing: kernels are written and their launches counted, while forwards and ATen's operators run on the CPU.
/// `only`: a regular expression that finds the names of rows; empty: all.
void print_counts(const std::string& only);

}  // namespace hindcast::bench::gpu
