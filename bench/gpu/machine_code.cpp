#include "bench/gpu/machine_code.h"

#include <regex>

#include "codegen/kernel/device_library.h"

namespace hindcast::bench::gpu {
namespace {

constexpr int kArchitecture = 90;

// As tests/support/machine_code.cpp reads it.
std::map<std::string, Registers> registers_in(const std::string& log) {
  static const std::regex kLine(
      R"(Compiling entry function '(\w+)'|(\d+) bytes spill stores, (\d+) bytes spill loads|Used (\d+) registers)");
  std::map<std::string, Registers> all;
  std::string entry;
  for (std::sregex_iterator found(log.begin(), log.end(), kLine), end; found != end; ++found) {
    const std::smatch& part = *found;
    if (part[1].matched) entry = part[1];
    if (part[2].matched) all[entry].spilled_bytes += std::stoi(part[2]) + std::stoi(part[3]);
    if (part[4].matched) all[entry].used = std::stoi(part[4]);
  }
  return all;
}

}  // namespace

const Registers& MachineCode::registers_of(const std::string& text, const std::string& entry) {
  const auto [found, is_new] = by_text_.try_emplace(text);
  if (is_new) {
    const auto options = codegen::cuda::kernel_options(kArchitecture);
    found->second = registers_in(nvrtc_.compile(text, codegen::device_library(), options).log);
  }
  return found->second.at(entry);
}

}  // namespace hindcast::bench::gpu
