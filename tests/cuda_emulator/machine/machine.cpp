#include "tests/cuda_emulator/machine/machine.h"

#include "codegen/device/indexing.h"
#include "tests/cuda_emulator/restrict_trap.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/cuda_emulator/runtime/launch.h"
#include "tests/cuda_emulator/runtime/memory.h"
#include "tests/support/costs_without_products.h"
#include "tests/support/kept_texts.h"

#include <c10/util/Flags.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <regex>
#include <stdexcept>
#include <utility>
#include <vector>

C10_DECLARE_bool(caffe2_cpu_allocator_do_junk_fill);

namespace hindcast::tests::cuda {
namespace {

namespace backend = codegen::cuda;

std::atomic<uint64_t> launches = 0, threads = 0;
std::atomic<bool> costs_of_card = false;

constexpr size_t kMostNames = 1000;  // in case nobody takes them
std::vector<std::string> launched;
std::mutex one_launch_at_a_time;

// A small card, so that small tensors fill it. Only tests change it, between launches.
backend::Limits limits_of_card{.multiprocessors = 4, .threads_of_multiprocessor = 512};
std::function<std::string(std::string)> edit_of_texts;

Dim3 dim_of(const backend::Dim& dim) { return {dim.x, dim.y, dim.z}; }

/// The text's kernels, and the declared maximum of threads per block of each.
std::map<std::string, uint64_t> kernels_in(const std::string& text) {
  static const std::regex entry(R"(extern "C" __global__ void __launch_bounds__\((\w+)[^)]*\) (\w+)\()");
  std::map<std::string, uint64_t> kernels;
  for (std::sregex_iterator found(text.begin(), text.end(), entry), end; found != end; ++found) {
    const std::string threads = (*found)[1];
    kernels[(*found)[2]] = threads == "kThreads" ? device::kThreads : std::stoul(threads);
  }
  return kernels;
}

// g++ compiles it at its first launch: a text has some seven kernels, of which a test launches one or two.
class Function {
 public:
  Function(std::shared_ptr<const std::string> text, std::string name, uint64_t most_threads)
      : text_(std::move(text)), name_(std::move(name)), most_threads_(most_threads) {}

  /// Under one_launch_at_a_time.
  const Kernel& kernel() const {
    if (kernel_ == nullptr) kernel_ = &cuda::compile(refusing_restrict(*text_), {name_}).kernel(name_);  // lives until the program ends
    return *kernel_;
  }
  const std::string& name() const { return name_; }
  uint64_t most_threads() const { return most_threads_; }

 private:
  std::shared_ptr<const std::string> text_;
  std::string name_;
  uint64_t most_threads_;  // per block: a card refuses more
  mutable const Kernel* kernel_ = nullptr;
};

// Only one launch at a time has its memory registered.
class Touched {
 public:
  explicit Touched(c10::ArrayRef<backend::Memory> memory) {
    std::map<const char*, std::pair<const char*, bool>> spans;  // begin -> end, has values
    for (const backend::Memory& one : memory) {
      const char* begin = static_cast<const char*>(one.begin);
      const char* end = begin + one.bytes;
      bool has_values = one.has_values;
      // Tensors may share memory, as views do.
      for (auto i = spans.begin(); i != spans.end();) {
        if (i->first >= end || i->second.first <= begin) {
          ++i;
          continue;
        }
        begin = std::min(begin, i->first);
        end = std::max(end, i->second.first);
        has_values = has_values || i->second.second;
        i = spans.erase(i);
      }
      spans[begin] = {end, has_values};
    }
    for (const auto& [begin, span] : spans) {
      Memory::global().add(begin, static_cast<uint64_t>(span.first - begin), "tensor", span.second);
      begins_.push_back(begin);
    }
  }
  ~Touched() {
    for (const char* begin : begins_) Memory::global().remove(begin);
  }
  Touched(const Touched&) = delete;
  Touched& operator=(const Touched&) = delete;

 private:
  std::vector<const char*> begins_;
};

/// Compiles all kernels of a text, like NVRTC.
void compile_all(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, threads] : kernels_in(text)) names.push_back(name);
  cuda::compile(refusing_restrict(text), names);
}

/// Whether kernels are compiled and run, or only their texts are needed.
const bool kernels_run = std::getenv("HINDCAST_ONLY_TEXTS") == nullptr;

/// Whether kernels that no test launches are compiled too, as in `make test-all`.
const bool all_are_compiled = std::getenv("HINDCAST_ALL_TESTS") != nullptr;

class EmulatedModule final : public backend::Module {
 public:
  explicit EmulatedModule(const std::string& text) {
    const auto shared = std::make_shared<const std::string>(text);
    for (const auto& [name, threads] : kernels_in(text)) functions_.try_emplace(name, shared, name, threads);
  }
  void* function(const char* name) const override { return const_cast<Function*>(&functions_.at(name)); }

 private:
  std::map<std::string, Function> functions_;
};

// A kernel's name stands for it.
class UncompiledModule final : public backend::Module {
 public:
  explicit UncompiledModule(const std::string& text) : kernels_(kernels_in(text)) {}
  void* function(const char* name) const override { return const_cast<char*>(kernels_.find(name)->first.c_str()); }

 private:
  const std::map<std::string, uint64_t> kernels_;
};

class Emulator final : public backend::Machine {
 public:
  c10::DeviceType device() const override { return c10::kCPU; }
  const backend::Limits& limits() const override { return limits_of_card; }
  std::string_view identity() const override { return "emulator"; }

  // The object is the text: the compiled library cannot be loaded twice from one file.
  std::string compile(std::string_view text) const override {
    std::string own(text);
    if (kernels_run && all_are_compiled) compile_all(own);
    return own;
  }
  std::shared_ptr<const backend::Module> load(std::string_view object) const override {
    keep_text(object);
    if (!kernels_run) return std::make_shared<UncompiledModule>(std::string(object));
    return std::make_shared<EmulatedModule>(edit_of_texts ? edit_of_texts(std::string(object)) : std::string(object));
  }

  void launch(const backend::Launch& launch) const override {
    if (!kernels_run) return;
    const std::lock_guard lock(one_launch_at_a_time);
    const Touched touched(launch.memory);
    void* argument = const_cast<void*>(launch.argument);
    const LaunchShape shape{dim_of(launch.grid), dim_of(launch.block), launch.shared_bytes};
    const auto& function = *static_cast<const Function*>(launch.function);
    if (shape.block.count() > function.most_threads()) {
      const std::string what =
          "expected at most " + std::to_string(function.most_threads()) + " threads in a block, as __launch_bounds__ says";
      throw KernelError({.kind = Wrong::Launch, .kernel = function.name(), .block = shape.grid, .thread = shape.block, .what = what});
    }
    cuda::launch(function.kernel(), shape, &argument);
    if (launched.size() < kMostNames) launched.push_back(function.name());
    launches += 1;
    threads += shape.grid.count() * shape.block.count();
  }
  bool wants_memory() const override { return true; }
  const codegen::CostModel* costs() const override { return costs_of_card ? nullptr : &kCostsWithoutProducts; }
};

}  // namespace

const backend::Machine& emulator_machine() {
  // New memory is filled with NaNs, so that a read of what a launch did not write shows in the results.
  FLAGS_caffe2_cpu_allocator_do_junk_fill = true;
  static const auto* const machine = new Emulator;  // threads of the library may still use it at exit
  return *machine;
}

WithLimits::WithLimits(const backend::Limits& limits) : before_(std::exchange(limits_of_card, limits)) {}
WithLimits::~WithLimits() { limits_of_card = before_; }

WithEdit::WithEdit(std::function<std::string(std::string)> edit) { edit_of_texts = std::move(edit); }
WithEdit::~WithEdit() { edit_of_texts = nullptr; }

CostsOfACard::CostsOfACard() { costs_of_card = true; }
CostsOfACard::~CostsOfACard() { costs_of_card = false; }

std::vector<std::string> take_launched() {
  const std::lock_guard lock(one_launch_at_a_time);
  return std::exchange(launched, {});
}

LaunchCounts launch_counts() { return {launches, threads}; }

}  // namespace hindcast::tests::cuda
