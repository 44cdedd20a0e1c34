#pragma once
// What differs between LibTorch releases, in one place.

#include <c10/core/DispatchKey.h>
#include <torch/headeronly/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR != 11
#error "hindcast is built for LibTorch 2.11; see docs/design.md for what to check before another release"
#endif

namespace hindcast::capture {

// Free in 2.11; a later LibTorch takes it for its own C++ FakeTensor. recorder_available() checks at run time.
inline constexpr c10::DispatchKey kRecorderKey = c10::DispatchKey::Fake;

}  // namespace hindcast::capture
