#include "tests/cuda_emulator/runtime/compile.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>

extern "C" char** environ;

namespace hindcast::tests::cuda {
namespace {

namespace fs = std::filesystem;
using Command = std::vector<std::string>;

const fs::path kText = fs::path(HINDCAST_SOURCE_DIR) / "tests/cuda_emulator/text";

std::string content(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Lives as long as the program.
class Folder {
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "hindcast_cuda_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder can be made: " + name);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Returns the exit status, 127 if it cannot be started. Its output goes to a file.
int run(const Command& command, const fs::path& log) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return 127;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// Compiles for the emulator. -O1 keeps every load and store that NVRTC's machine code has.
Command kernel_command(const std::string& source, const std::string& object) {
  return {"g++", "-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-fno-exceptions", "-fno-rtti",
          // The compiler's part of the sanitizers; their libraries are not linked.
          "-fsanitize=thread,alignment,bounds,object-size", "-fno-sanitize-recover=all", "--param=tsan-instrument-func-entry-exit=0",
          // Vectors would be accessed by instructions that are not instrumented.
          "-fno-tree-vectorize", "-ffp-contract=off", "-fno-math-errno",
          // A fibre's stack has 64 KiB.
          "-Werror=frame-larger-than=16384", "-include", kText / "cuda.h", "-I", HINDCAST_SOURCE_DIR, "-c", source, "-o", object};
}

class Compiler {
 public:
  static Compiler& instance() {
    static Compiler compiler;
    return compiler;
  }

  const std::string& why_not() const { return why_not_; }

  const Module& compile(const std::string& text, const std::vector<std::string>& kernels) {
    if (!why_not_.empty()) throw CompileError(why_not_);
    std::string source = "#line 1 \"kernel.cu\"\n" + text + "\n";
    for (const std::string& kernel : kernels) source += "HC_EMULATOR_ENTRY(" + kernel + ")\n";
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Module>& module = modules_[source];
    if (!module) module = build(source, kernels);
    return *module;
  }

 private:
  Compiler() {
    const fs::path log = folder_.path() / "entry_points.txt";
    const int status =
        run({"g++", "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-c", kText / "entry_points.cpp", "-o", entry_points()}, log);
    if (status == 127) {
      why_not_ = "g++ was not found; it compiles the kernels that the CUDA emulator runs (apt-get install g++)";
    } else if (status != 0) {
      why_not_ = "g++ cannot compile the CUDA emulator's entry points: " + content(log);
    }
  }

  std::string entry_points() const { return folder_.path() / "entry_points.o"; }

  std::unique_ptr<Module> build(const std::string& source, const std::vector<std::string>& kernels) const {
    const std::string base = folder_.path() / std::to_string(std::hash<std::string>()(source));
    std::ofstream(base + ".cpp") << source;
    if (run(kernel_command(base + ".cpp", base + ".o"), base + ".txt") != 0 ||
        run({"g++", "-shared", "-o", base + ".so", base + ".o", entry_points(), "-Wl,-z,defs", "-lm"}, base + ".txt") != 0) {
      throw CompileError("g++ cannot compile a kernel for the CUDA emulator:\n" + content(base + ".txt") + "\nThe text:\n" + source);
    }
    return std::make_unique<Module>(base + ".so", kernels);
  }

  Folder folder_;
  std::string why_not_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Module>> modules_;
};

}  // namespace

std::string why_no_compiler() { return Compiler::instance().why_not(); }

const Module& compile(const std::string& text, const std::vector<std::string>& kernels) {
  return Compiler::instance().compile(text, kernels);
}

}  // namespace hindcast::tests::cuda
