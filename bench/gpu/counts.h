#pragma once

#include <string>

namespace hindcast::bench::gpu {

/// Prints what is known of each row without a card: launches, bytes, and the resources of the kernels' code. Two tables in Markdown:
/// backwards, then the rows whole/, which are functions with their backwards.
///
/// Installs a card that runs nothing: kernels are written and their launches counted, while forwards and ATen's operators run on the CPU.
/// `only`: a regular expression that selects rows by name; empty: all.
void print_counts(const std::string& only);

}  // namespace hindcast::bench::gpu
