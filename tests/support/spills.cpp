#include "tests/support/spills.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <regex>

#include "codegen/cuda/nvrtc.h"
#include "codegen/device/indexing.h"
#include "codegen/kernel/device_library.h"

namespace hindcast::tests {
namespace {

/// Bytes that functions of CUDA's own save where they are called, as a division does on its slow path.
constexpr int kSavedAroundCalls = 64;

/// A kernel that has fewer registers than it may does not lack them: it saves more around a call, or ptxas has chosen more threads. Neither takes
/// much.
bool lacks_registers(const std::string& text, const std::string& kernel, const KernelUse& use) {
  static const std::regex entry(R"(__launch_bounds__\((\w+)(?:, (\d+))?\) (\w+)\()");
  constexpr int kRegisters = 65536, kMostOfThread = 255;  // of a multiprocessor
  int threads = device::kThreads, blocks = 1;
  for (std::sregex_iterator found(text.begin(), text.end(), entry), end; found != end; ++found) {
    if ((*found)[3] != kernel) continue;
    if ((*found)[1] != "kThreads") threads = std::stoi((*found)[1]);
    if ((*found)[2].matched) blocks = std::stoi((*found)[2]);
  }
  if (use.spilled_bytes > 2 * kSavedAroundCalls) return true;
  return use.spilled_bytes > kSavedAroundCalls && use.registers >= std::min(kRegisters / (threads * blocks), kMostOfThread) - 8;
}

/// Of texts `first`, `first` + `step` and so on.
std::vector<Spill> spills_of_some(const codegen::cuda::Nvrtc& nvrtc, const std::vector<std::string>& texts, size_t first, size_t step) {
  static const bool takes_all = std::getenv("HINDCAST_ALL_ARCHITECTURES") != nullptr;
  std::vector<Spill> spills;
  const size_t count = texts.size() * (takes_all ? kArchitectures.size() : 1);
  for (size_t n = first; n < count; n += step) {
    const size_t i = n % texts.size();
    const int architecture = kArchitectures.at((i / step + n / texts.size()) % kArchitectures.size());
    const auto code = nvrtc.compile(texts[i], codegen::device_library(), codegen::cuda::kernel_options(architecture));
    for (const auto& [kernel, use] : uses_in(code.log)) {
      if (lacks_registers(texts[i], kernel, use)) spills.push_back({architecture, kernel, use, texts[i]});
    }
  }
  return spills;
}

}  // namespace

std::vector<Spill> spills_of(const codegen::cuda::Nvrtc& nvrtc, const std::vector<std::string>& texts) {
  auto half = std::async(std::launch::async, [&] { return spills_of_some(nvrtc, texts, 1, 2); });
  std::vector<Spill> spills = spills_of_some(nvrtc, texts, 0, 2);
  for (Spill& spill : half.get()) spills.push_back(std::move(spill));
  return spills;
}

void expect_no_spills(const codegen::cuda::Nvrtc& nvrtc, const std::vector<std::string>& texts) {
  for (const Spill& spill : spills_of(nvrtc, texts)) {
    ADD_FAILURE() << spill.kernel << " for sm_" << spill.architecture << " has " << spill.use.registers << " registers, spills "
                  << spill.use.spilled_bytes << " bytes and has a stack of " << spill.use.stack_bytes << "\n"
                  << spill.text;
  }
}

}  // namespace hindcast::tests
