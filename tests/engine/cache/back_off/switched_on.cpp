// All other tests switch it off (tests/support/eager_by_default.cpp), which does not overwrite a variable that is set.

#include <cstdlib>

namespace hindcast::tests {
namespace {

[[maybe_unused]] const int back_off = setenv("HINDCAST_BACK_OFF", "1", /*overwrite=*/1);

}  // namespace
}  // namespace hindcast::tests
