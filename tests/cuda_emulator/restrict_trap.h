#pragma once
// What the emulator cannot see: NVRTC believes that nobody else writes where a pointer with __restrict__ leads, and drops the load after a
// barrier. The backend's kernels take their pointers in a struct, and hand them on. So their texts must not have the word in any place.

#include <string>

namespace hindcast::tests::cuda {

/// The text, of which g++ makes an error where it, or a header that it includes, has one of the words. Its lines keep their numbers.
inline std::string refusing_restrict(const std::string& text) {
  return "#pragma GCC poison __restrict__ __restrict restrict\n#line 1 \"kernel.cu\"\n" + text;
}

}  // namespace hindcast::tests::cuda
