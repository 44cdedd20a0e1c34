#include "tests/machine_code/spills.h"

#include "codegen/device/indexing.h"

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace hindcast::tests {
namespace {

/// Bytes that CUDA's own functions save around a call, as in the slow path of a division.
constexpr int kSavedAroundCalls = 64;

}  // namespace

// A kernel below its register limit does not lack registers: it saves more around a call, or ptxas has chosen more threads. Neither costs
// much.
bool lacks_registers(const std::string& text, const std::string& kernel, const KernelUse& use) {
  if (use.spilled_bytes <= kSavedAroundCalls) return false;
  if (use.spilled_bytes > 2 * kSavedAroundCalls) return true;
  static const std::regex entry(R"(__launch_bounds__\((\w+)(?:, (\d+))?\) (\w+)\()");
  constexpr int kRegisters = 65536, kMostOfThread = 255;  // per multiprocessor, and per thread
  int threads = device::kThreads, blocks = 1;
  for (std::sregex_iterator found(text.begin(), text.end(), entry), end; found != end; ++found) {
    if ((*found)[3] != kernel) continue;
    if ((*found)[1] != "kThreads") threads = std::stoi((*found)[1]);
    if ((*found)[2].matched) blocks = std::stoi((*found)[2]);
  }
  return use.registers >= std::min(kRegisters / (threads * blocks), kMostOfThread) - 8;
}

AllowedSpills read_allowed_spills(const std::string& path) {
  AllowedSpills allowed;
  std::ifstream in(path);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string label, entry, more;
    int bytes = 0;
    if (!(words >> label >> entry >> bytes) || words >> more)
      throw std::invalid_argument(path + ":" + std::to_string(number) + ": '" + line + "' is not <label> <entry point> <bytes>");
    allowed[{label, entry}] = bytes;
  }
  return allowed;
}

}  // namespace hindcast::tests
