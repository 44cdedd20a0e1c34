#include "tests/whole/fuzz/report.h"

#include <gtest/gtest.h>

#include "tests/whole/fuzz/print_cpp.h"
#include "tests/whole/fuzz/shrink.h"

namespace hindcast::tests::fuzz {

void report(const Program& program, const std::string& what, const std::string& difference,
            const std::function<std::string(const Program&)>& difference_of) {
  const Program small = shrink(program, [&](const Program& candidate) { return !difference_of(candidate).empty(); });
  ADD_FAILURE() << "seed " << program.seed << ": " << what << '\n'
                << difference << "made smaller:\n"
                << difference_of(small) << "A program that shows it (link LibTorch and hindcast):\n----\n"
                << print_reproducer(small) << "----";
}

}  // namespace hindcast::tests::fuzz
