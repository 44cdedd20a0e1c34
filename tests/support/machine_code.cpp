#include "tests/support/machine_code.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace hindcast::tests {
namespace fs = std::filesystem;

std::map<std::string, KernelUse> uses_in(const std::string& log) {
  std::map<std::string, KernelUse> uses;
  const std::regex line(
      R"(Compiling entry function '(\w+)'|(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads|Used (\d+) registers|(\d+) bytes smem)");
  std::string kernel;
  for (std::sregex_iterator found(log.begin(), log.end(), line), end; found != end; ++found) {
    const std::smatch& part = *found;
    if (part[1].matched) kernel = part[1];
    KernelUse& use = uses[kernel];
    // Functions that a kernel calls follow it, with stacks of their own.
    if (part[2].matched) {
      use.stack_bytes += std::stoi(part[2]);
      use.spilled_bytes += std::stoi(part[3]) + std::stoi(part[4]);
    }
    if (part[5].matched) use.registers = std::stoi(part[5]);
    if (part[6].matched) use.shared_bytes = std::stoi(part[6]);
  }
  return uses;
}

std::string disassembler(std::string* why_not) {
  const fs::path packages = fs::path(HINDCAST_TORCH_INCLUDE_DIR).parent_path().parent_path();
  std::stringstream path(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  std::error_code error;
  fs::path program = packages / "triton/backends/nvidia/bin/nvdisasm";
  for (std::string folder; !fs::exists(program, error);) {
    if (!std::getline(path, folder, ':')) {
      *why_not = "nvdisasm is neither in a triton beside LibTorch nor on the PATH";
      return "";
    }
    program = fs::path(folder) / "nvdisasm";
  }
  return program;
}

std::string disassembled(std::string_view object) {
  std::string why_not;
  const std::string program = disassembler(&why_not);
  if (program.empty()) throw std::runtime_error(why_not);
  // The disassembler reads only files.
  std::string path = fs::temp_directory_path() / "hindcast_cubin_XXXXXX";
  const int file = mkstemp(path.data());
  const std::unique_ptr<const std::string, void (*)(const std::string*)> removed(&path, [](const std::string* name) { fs::remove(*name); });
  if (file < 0 || write(file, object.data(), object.size()) != static_cast<ssize_t>(object.size()) || close(file) != 0)
    throw std::runtime_error("cannot write " + path);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((program + " -c '" + path + "' 2>&1").c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> part;
  for (size_t count = 0; pipe && (count = fread(part.data(), 1, part.size(), pipe.get())) > 0;) text.append(part.data(), count);
  return text;
}

namespace {

/// The disassembler numbers the labels of all kernels together.
std::string with_labels_of_its_own(const std::string& code) {
  const std::regex label(R"(\.L_x_\d+)");
  std::map<std::string, size_t> numbers;
  std::string result;
  auto copied = code.begin();
  for (std::sregex_iterator found(code.begin(), code.end(), label), end; found != end; ++found) {
    const size_t number = numbers.try_emplace((*found)[0], numbers.size()).first->second;
    result.append(copied, (*found)[0].first).append(".L" + std::to_string(number));
    copied = (*found)[0].second;
  }
  return result.append(copied, code.end());
}

}  // namespace

std::map<std::string, std::string> kernels_in(const std::string& instructions) {
  std::map<std::string, std::string> kernels;
  const std::regex section(R"(\n\t\.section\t\.text\.(\w+),)");
  for (std::sregex_iterator found(instructions.begin(), instructions.end(), section), end; found != end; ++found) {
    const std::string name = (*found)[1];
    const auto begin = static_cast<size_t>(found->position());
    std::string code = instructions.substr(begin, instructions.find("\n//---", begin) - begin);  // up to the next section's title
    code.erase(code.find_last_not_of('\n') + 1);
    kernels[name] = with_labels_of_its_own(std::regex_replace(code, std::regex("\\b" + name + "\\b"), "kernel"));
  }
  return kernels;
}

std::map<std::string, WideAccesses> wide_accesses_in(const std::string& instructions) {
  std::map<std::string, WideAccesses> accesses;
  // The mnemonic may also contain a cache's line size: LDG.E.LTC128B.128.CONSTANT
  const std::regex line(R"(\n\.text\.(\w+):|\b(LDG?|STG?)((?:\.\w+)*)\.128(?![\w]))");
  std::string kernel;
  for (std::sregex_iterator found(instructions.begin(), instructions.end(), line), end; found != end; ++found) {
    if ((*found)[1].matched) {
      kernel = (*found)[1];
      accesses[kernel];
    } else {
      ((*found)[2].str().front() == 'L' ? accesses[kernel].loads : accesses[kernel].stores) += 1;
    }
  }
  return accesses;
}

}  // namespace hindcast::tests
