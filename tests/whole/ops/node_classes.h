#pragma once

#include <set>
#include <string>

namespace hindcast::tests::ops {

/// The names of all node classes that LibTorch's `generated/Functions.h` declares, read from the installed header.
std::set<std::string> all_node_classes();

}  // namespace hindcast::tests::ops
