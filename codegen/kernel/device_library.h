#pragma once

#include <span>
#include <string_view>

namespace hindcast::codegen {

/// A header that a kernel's text may include by its name.
struct DeviceHeader {
  std::string_view name;
  std::string_view text;
};

/// The headers of codegen/device as they were when hindcast was built, under the names by which kernels include them.
std::span<const DeviceHeader> device_library();

}  // namespace hindcast::codegen
