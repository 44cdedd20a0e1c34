#pragma once
// How a test reports a program that fails.

#include <functional>
#include <string>

#include "tests/whole/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// Adds a failure with the seed, `what` is wrong, and a smaller program that shows it, as C++. `difference_of` is called for each smaller
/// program; empty: no difference.
void report(const Program& program, const std::string& what, const std::string& difference,
            const std::function<std::string(const Program&)>& difference_of);

}  // namespace hindcast::tests::fuzz
