// compile_texts FOLDER: compiles the kernels' texts in a folder for this machine's card, on all cores, into the store on disk. Tests wait
// for each kernel; where their texts came along, these are all there when the tests begin. A card is needed to know for what to compile.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "codegen/cuda/kernels.h"
#include "codegen/cuda/machine.h"
#include "codegen/kernel/kernel_object.h"
#include "tests/gpu/texts/find_gpu.h"

namespace {

using hindcast::codegen::cuda::Machine;
using hindcast::codegen::cuda::MachineCompiler;

std::vector<std::string> texts_in(const std::filesystem::path& folder) {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".cu") continue;
    std::ifstream in(entry.path());
    texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return texts;
}

/// How many could not be compiled.
size_t compile(const Machine& machine, const std::vector<std::string>& texts) {
  std::atomic<size_t> next = 0, failed = 0;
  const auto work = [&] {
    for (size_t i = next++; i < texts.size(); i = next++) {
      try {
        hindcast::codegen::load_object(MachineCompiler(machine), texts[i], texts[i], [](std::string_view) {});
      } catch (const std::exception& error) {
        ++failed;
        std::fprintf(stderr, "compile_texts: %s\n", error.what());
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1U); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("compile_texts FOLDER\n", stderr);
    return 2;
  }
  try {
    std::string why_not = hindcast::tests::find_gpu();
    const Machine* const machine = why_not.empty() ? hindcast::codegen::cuda::machine(&why_not) : nullptr;
    if (machine == nullptr) {
      std::fprintf(stderr, "compile_texts: nothing is compiled: %s\n", why_not.c_str());
      return 1;
    }
    const std::vector<std::string> texts = texts_in(argv[1]);
    const size_t failed = compile(*machine, texts);
    const auto counts = hindcast::codegen::kernel_counts();
    std::printf("%zu texts: %llu compiled, %llu were in the store, %zu failed\n", texts.size(),
                static_cast<unsigned long long>(counts.compiled), static_cast<unsigned long long>(counts.loaded), failed);
    return failed == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compile_texts: error: %s\n", error.what());
    return 2;
  }
}
