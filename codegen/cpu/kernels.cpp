#include "codegen/cpu/kernels.h"

#include "codegen/cpu/clang/compiler.h"
#include "codegen/cpu/clang/fork_gate.h"
#include "codegen/kernel/device_library.h"
#include "codegen/store/kernel_store.h"
#include "codegen/store/store_folder.h"
#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <type_traits>
#include <unordered_map>

namespace hindcast::codegen {
namespace {

struct Counters {
  std::atomic<uint64_t> compiled = 0, loaded = 0, compile_ns = 0;
};
Counters& counters() {
  static auto* counters = new Counters;
  return *counters;
}

KernelStore& store() {
  static auto* store = [] {
    auto* made = new KernelStore({default_store_folder()});
    if (const std::string problem = made->problem(); !problem.empty() && !made->options().folder.empty())
      HC_LOG(CompiledAutograd, Warning, "kernels are not kept on disk: {}", problem);
    return made;
  }();
  return *store;
}

KernelKey key_of(const ClangCompiler& compiler, const std::string& text) {
  std::vector<std::string_view> parts = {compiler.identity(), text};
  for (const SourceFile& file : device_library()) {
    parts.push_back(file.name);
    parts.push_back(file.text);
  }
  return codegen::key_of(parts);
}

std::string compile(const ClangCompiler& compiler, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  KernelSource source;
  source.text = text;
  source.files = device_library();
  std::string object = compiler.compile(source);
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  counters().compiled += 1;
  counters().compile_ns += static_cast<uint64_t>(ns);
  HC_LOG(KernelCode, Info, "compiled in {:.1f} ms, {} bytes\n{}", static_cast<double>(ns) * 1e-6, object.size(), text);
  return object;
}

std::shared_ptr<const CpuKernel> load(const ClangCompiler& compiler, std::string_view object, const Body& body) {
  auto kernel = std::make_shared<CpuKernel>();
  const auto loaded = compiler.load(object);
  const auto find = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(loaded->symbol(name));
    HC_CHECK(function != nullptr, "a kernel without its function {}", name);
  };
  if (body.by_rows) {
    find(kernel->rows, "rows");
    if (has_leaves(body)) find(kernel->rows_to_leaves, "leaves");
  } else {
    find(kernel->dense, "dense");
    if (has_leaves(body)) find(kernel->leaves, "leaves");
  }
  kernel->code = loaded;
  kernel->bytes = object.size();
  return kernel;
}

std::shared_ptr<const CpuKernel> make(const ClangCompiler& compiler, const std::string& text, const Body& body) {
  const KernelKey key = key_of(compiler, text);
  if (const auto stored = store().read(key)) {
    try {
      auto kernel = load(compiler, *stored, body);
      counters().loaded += 1;
      return kernel;
    } catch (const std::exception& error) {  // made by another build of Clang that calls itself the same
      HC_LOG(CompiledAutograd, Warning, "a kernel from the store cannot be loaded: {}", error.what());
    }
  }
  const std::string object = compile(compiler, text);
  store().write(key, object);
  return load(compiler, object, body);
}

// The kernels that somebody holds, by a hash of their text. Those that nobody does any more leave when the table has doubled.
class KernelTable {
 public:
  static KernelTable& of_process() {
    static auto* table = new KernelTable;
    return *table;
  }

  std::shared_ptr<const CpuKernel> find_or_make(const ClangCompiler& compiler, const Body& body) {
    const std::string text = cpu_source(body);
    const KernelKey key = codegen::key_of({text});
    // One thread compiles at a time: two that want the same kernel get one.
    const std::lock_guard lock(mutex_);
    if (const auto known = kernels_.find(key); known != kernels_.end()) {
      if (auto kernel = known->second.lock()) return kernel;
    }
    auto kernel = make(compiler, text, body);
    if (kernels_.size() >= sweep_at_) sweep();
    kernels_[key] = kernel;
    return kernel;
  }

  size_t size() {
    const std::lock_guard lock(mutex_);
    return kernels_.size();
  }

 private:
  static constexpr size_t kSmallest = 64;
  struct HashOfKey {
    size_t operator()(const KernelKey& key) const { return key.low; }
  };

  void sweep() {
    std::erase_if(kernels_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max(kSmallest, 2 * kernels_.size());
  }

  std::mutex mutex_;  // locked only inside of the compiler's gate, so that no fork finds it held
  std::unordered_map<KernelKey, std::weak_ptr<const CpuKernel>, HashOfKey> kernels_;
  size_t sweep_at_ = kSmallest;
};

}  // namespace

std::shared_ptr<const CpuKernel> cpu_kernel(const Body& body, std::string& why_not) {
  const InsideCompiler inside;
  const auto compiler = ClangCompiler::get(&why_not);
  if (!compiler) return nullptr;
  try {
    return KernelTable::of_process().find_or_make(*compiler, body);
  } catch (const std::exception& error) {
    why_not = error.what();
    return nullptr;
  }
}

size_t known_kernels() {
  const InsideCompiler inside;
  return KernelTable::of_process().size();
}

KernelCounts kernel_counts() {
  const Counters& now = counters();
  return {now.compiled, now.loaded, static_cast<double>(now.compile_ns) * 1e-3};
}

}  // namespace hindcast::codegen
