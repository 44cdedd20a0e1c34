// Tests compare with the stock engine to the bit, and count captures and hits, unless they enable kernels or the back-off themselves.

#include <cstdlib>

namespace hindcast::tests {
namespace {

[[maybe_unused]] const int compiler = setenv("HINDCAST_COMPILER", "eager", /*overwrite=*/1);
[[maybe_unused]] const int back_off = setenv("HINDCAST_BACK_OFF", "0", /*overwrite=*/0);

}  // namespace
}  // namespace hindcast::tests
