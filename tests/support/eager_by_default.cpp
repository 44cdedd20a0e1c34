// Tests compare with the stock engine to the bit, unless they ask for kernels themselves.

#include <cstdlib>

namespace hindcast::tests {
namespace {

[[maybe_unused]] const int set = setenv("HINDCAST_COMPILER", "eager", /*overwrite=*/1);

}  // namespace
}  // namespace hindcast::tests
