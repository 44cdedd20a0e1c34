// Replaces LLVM's Compression.cpp and CRC.cpp, the two files that call zlib and zstd: kernels have no compressed sections, so the
// plug-in need not depend on these libraries. Compression is unavailable, as in an LLVM that was built without it; checksums are
// computed. The linker skips a file of LLVM's archives if all its symbols are defined here, and reports an error if one is missing.

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/Support/CRC.h>
#include <llvm/Support/Compression.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/ErrorHandling.h>

namespace llvm {
namespace {

Error none() { return createStringError("this LLVM was built without compression"); }
void unreachable() { report_fatal_error("compression was asked for without asking isAvailable()"); }

}  // namespace

namespace compression {
namespace zlib {

bool isAvailable() { return false; }
void compress(ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, int) { unreachable(); }
Error decompress(ArrayRef<uint8_t>, uint8_t*, size_t&) { return none(); }
Error decompress(ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, size_t) { return none(); }

}  // namespace zlib
namespace zstd {

bool isAvailable() { return false; }
void compress(ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, int, bool) { unreachable(); }
Error decompress(ArrayRef<uint8_t>, uint8_t*, size_t&) { return none(); }
Error decompress(ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, size_t) { return none(); }

}  // namespace zstd

const char* getReasonIfUnsupported(Format) { return "this LLVM was built without compression"; }
void compress(Params, ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&) { unreachable(); }
Error decompress(DebugCompressionType, ArrayRef<uint8_t>, uint8_t*, size_t) { return none(); }
Error decompress(Format, ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, size_t) { return none(); }
Error decompress(DebugCompressionType, ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, size_t) { return none(); }

}  // namespace compression

uint32_t crc32(uint32_t crc, ArrayRef<uint8_t> data) {
  crc = ~crc;
  for (const uint8_t byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}
uint32_t crc32(ArrayRef<uint8_t> data) { return crc32(0, data); }
void JamCRC::update(ArrayRef<uint8_t> data) { CRC = ~crc32(~CRC, data); }

}  // namespace llvm
