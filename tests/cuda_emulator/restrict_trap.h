#pragma once
// What the emulator cannot see: NVRTC assumes that nobody else writes through a pointer with __restrict__, and drops the load after a
// barrier. The backend's kernels take their pointers in a struct, and pass them on. So their texts must not contain the word anywhere.

#include <string>

namespace hindcast::tests::cuda {

/// The text, for which g++ reports an error if it, or a header that it includes, contains one of the words. Line numbers stay the same.
inline std::string refusing_restrict(const std::string& text) {
  return "#pragma GCC poison __restrict__ __restrict restrict\n#line 1 \"kernel.cu\"\n" + text;
}

}  // namespace hindcast::tests::cuda
