#pragma once

#include <string>

namespace hindcast::bench::gpu {

/// Prints what of each row is known without a card: launches, bytes, and what the kernels' code needs. As tables in Markdown, one of
/// backwards, and behind it one of the rows whole/, which are functions with their backwards.
///
/// Installs a card that runs nothing: kernels are written and their launches counted, while forwards and ATen's operators run on the CPU.
/// `only`: a regular expression that finds the names of rows; empty: all.
void print_counts(const std::string& only);

}  // namespace hindcast::bench::gpu
