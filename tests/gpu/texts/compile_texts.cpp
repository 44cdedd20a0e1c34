// compile_texts FOLDER [ARCHITECTURE]: compiles the kernels' texts in a folder into the store on disk, on all cores, unless they are there
// already. Tests wait for each kernel that the store lacks.
//
// ARCHITECTURE is a number such as 90, and needs no card. Without it, the texts are compiled for this machine's card.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "codegen/cuda/kernels.h"
#include "codegen/cuda/machine.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel/kernel_object.h"
#include "tests/gpu/texts/find_gpu.h"

namespace {

using hindcast::codegen::KernelCompiler;
using hindcast::codegen::cuda::Nvrtc;

/// Compiles like a card of this architecture: its store has the objects under the same keys.
class CompilerForArchitecture final : public KernelCompiler {
 public:
  CompilerForArchitecture(const Nvrtc& nvrtc, int architecture)
      : nvrtc_(nvrtc), options_(hindcast::codegen::cuda::kernel_options(architecture)), identity_(object_identity(nvrtc, options_)) {}

  std::string_view identity() const override { return identity_; }
  std::string compile(std::string_view text) const override {
    return nvrtc_.compile(text, hindcast::codegen::device_library(), options_).object;
  }

 private:
  const Nvrtc& nvrtc_;
  const std::vector<std::string> options_;
  const std::string identity_;
};

/// `architecture`: null for this machine's card.
std::unique_ptr<const KernelCompiler> compiler_for(const char* architecture) {
  std::string why_not;
  if (architecture != nullptr) {
    if (const Nvrtc* const nvrtc = Nvrtc::get(&why_not)) return std::make_unique<CompilerForArchitecture>(*nvrtc, std::stoi(architecture));
  } else {
    why_not = hindcast::tests::find_gpu();
    const auto* const machine = why_not.empty() ? hindcast::codegen::cuda::machine(&why_not) : nullptr;
    if (machine != nullptr) return std::make_unique<hindcast::codegen::cuda::MachineCompiler>(*machine);
  }
  throw std::runtime_error("nothing is compiled: " + why_not);
}

std::vector<std::string> texts_in(const std::filesystem::path& folder) {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".cu") continue;
    std::ifstream in(entry.path());
    texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return texts;
}

/// Returns how many could not be compiled.
size_t compile(const KernelCompiler& compiler, const std::vector<std::string>& texts) {
  std::atomic<size_t> next = 0, failed = 0;
  const auto work = [&] {
    for (size_t i = next++; i < texts.size(); i = next++) {
      try {
        hindcast::codegen::load_object(compiler, texts[i], texts[i], [](std::string_view) {});
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
  if (argc != 2 && argc != 3) {
    std::fputs("compile_texts FOLDER [ARCHITECTURE]\n", stderr);
    return 2;
  }
  try {
    const auto compiler = compiler_for(argc == 3 ? argv[2] : nullptr);
    const std::vector<std::string> texts = texts_in(argv[1]);
    const size_t failed = compile(*compiler, texts);
    const auto counts = hindcast::codegen::kernel_counts();
    std::printf("%zu texts: %llu compiled, %llu were in the store, %zu failed\n", texts.size(),
                static_cast<unsigned long long>(counts.compiled), static_cast<unsigned long long>(counts.loaded), failed);
    return failed == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compile_texts: error: %s\n", error.what());
    return 2;
  }
}
