#include "c_api/versions.h"

#include "hindcast/hindcast_c.h"

#include <torch/version.h>

#include <stdexcept>
#include <string>

// LibTorch's own C interface: major, minor and patch in the three highest bytes.
extern "C" uint64_t aoti_torch_abi_version();

namespace hindcast::c_api {

void check_libtorch() {
  const uint64_t version = aoti_torch_abi_version();
  const uint64_t major = version >> 56, minor = version >> 48 & 0xff;
  if (major == TORCH_VERSION_MAJOR && minor == TORCH_VERSION_MINOR) return;
  throw std::runtime_error("this hindcast is built for LibTorch " + std::string(TORCH_VERSION) + ", and this process has " +
                           std::to_string(major) + "." + std::to_string(minor));
}

}  // namespace hindcast::c_api

extern "C" {

uint32_t hindcast_abi_version() { return 1; }
const char* hindcast_libtorch_version() { return TORCH_VERSION; }
}
