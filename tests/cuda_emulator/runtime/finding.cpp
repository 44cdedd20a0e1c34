#include "tests/cuda_emulator/runtime/finding.h"

#include <sstream>

namespace hindcast::tests::cuda {
namespace {

std::string text_of(Dim3 place) {
  return "(" + std::to_string(place.x) + ", " + std::to_string(place.y) + ", " + std::to_string(place.z) + ")";
}

}  // namespace

std::string name_of(Wrong kind) {
  switch (kind) {
    case Wrong::GlobalBounds:
      return "access outside of global memory";
    case Wrong::SharedBounds:
      return "access outside of shared memory";
    case Wrong::ArrayBounds:
      return "access outside of an array";
    case Wrong::Uninitialised:
      return "read of what nobody wrote";
    case Wrong::ReadAfterWrite:
      return "race: read after write";
    case Wrong::WriteAfterRead:
      return "race: write after read";
    case Wrong::WriteAfterWrite:
      return "race: write after write";
    case Wrong::Barrier:
      return "barrier that not all threads reach";
    case Wrong::Warp:
      return "lanes that are absent";
    case Wrong::Misaligned:
      return "misaligned access";
    case Wrong::Launch:
      return "bad launch";
  }
  return "unknown";
}

std::string describe(const Finding& finding) {
  std::ostringstream text;
  text << name_of(finding.kind) << " in " << finding.kernel << ", block " << text_of(finding.block) << ", thread "
       << text_of(finding.thread);
  if (finding.address != 0) text << ", address 0x" << std::hex << finding.address << std::dec;
  if (finding.element >= 0) text << ", element " << finding.element;
  if (!finding.what.empty()) text << ": " << finding.what;
  return text.str();
}

}  // namespace hindcast::tests::cuda
