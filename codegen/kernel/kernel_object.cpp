#include "codegen/kernel/kernel_object.h"

#include "base/fork.h"
#include "codegen/kernel/device_library.h"
#include "codegen/store/kernel_key.h"
#include "codegen/store/kernel_store.h"
#include "codegen/store/store_folder.h"
#include "base/log.h"
#include "base/trace.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

namespace hindcast::codegen {
namespace {

struct Counters {
  std::atomic<uint64_t> compiled = 0, loaded = 0, compile_ns = 0;
};
Counters& counters() {
  static constinit base::MadeOnce<Counters> counters;
  return counters.get();
}

class StoreOnDisk : public store::KernelStore {
 public:
  StoreOnDisk() : KernelStore({store::default_store_folder()}) {
    if (const std::string why_not = problem(); !why_not.empty() && !options().folder.empty())
      HC_LOG(CompiledAutograd, Warning, "kernels are not kept on disk: {}", why_not);
  }
};

store::KernelStore& store_on_disk() {
  static constinit base::MadeOnce<StoreOnDisk> store;
  return store.get();
}

store::KernelKey key_on_disk(const KernelCompiler& compiler, const std::string& text) {
  std::vector<std::string_view> parts = {compiler.identity(), text};
  for (const DeviceHeader& header : device_library()) {
    parts.push_back(header.name);
    parts.push_back(header.text);
  }
  return store::key_of(parts);
}

thread_local const AskedBy* asked_by_of_thread = nullptr;

void log_text(const std::string& where_from, const std::string& text) {
  if (!base::enabled(base::Channel::KernelCode, base::Level::Info)) return;
  const std::string asked_by = AskedBy::now();
  HC_LOG(KernelCode, Info, "{}{}{}\n{}", where_from, asked_by.empty() ? "" : ", for ", asked_by, text);
}

// The trace identifies a kernel by the hash of its whole text, as its records of groups do.
void tell_object(const std::string& where_from, const std::string& text, const std::string& kernel) {
  log_text(where_from, text);
  if (!base::tracing()) return;
  base::JsonObject head, body;
  head.add("kernel", store::text_of(store::key_of({kernel}))).add("text", where_from);
  body.add("source", kernel);
  base::write_record("kernel", std::move(head), &body);
}

std::string compile(const KernelCompiler& compiler, const std::string& text, const std::string& kernel) {
  const auto start = std::chrono::steady_clock::now();
  std::string object = compiler.compile(text);
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  counters().compiled += 1;
  counters().compile_ns += static_cast<uint64_t>(ns);
  tell_object(base::format("compiled in {:.1f} ms, {} bytes", static_cast<double>(ns) * 1e-6, object.size()), text, kernel);
  return object;
}

}  // namespace

AskedBy::AskedBy(std::string sentence) : sentence_(std::move(sentence)), outer_(std::exchange(asked_by_of_thread, this)) {}
AskedBy::~AskedBy() { asked_by_of_thread = outer_; }
std::string AskedBy::now() { return asked_by_of_thread == nullptr ? std::string() : asked_by_of_thread->sentence_; }

void load_object(const KernelCompiler& compiler, const std::string& text, const std::string& kernel, const LoadObject& load) {
  const store::KernelKey key = key_on_disk(compiler, text);
  if (const auto stored = store_on_disk().read(key)) {
    try {
      load(*stored);
      counters().loaded += 1;
      tell_object("from the store on disk", text, kernel);
      return;
    } catch (const std::exception& error) {  // e.g. written by a different build of the compiler with the same identity
      HC_LOG(CompiledAutograd, Warning, "a kernel from the store cannot be loaded: {}", error.what());
    }
  }
  const std::string object = compile(compiler, text, kernel);
  store_on_disk().write(key, object);
  load(object);
}

std::string stored_or_compiled(const KernelCompiler& compiler, const std::string& text) {
  const store::KernelKey key = key_on_disk(compiler, text);
  if (auto stored = store_on_disk().read(key)) return *std::move(stored);
  std::string object = compiler.compile(text);
  store_on_disk().write(key, object);
  return object;
}

KernelCounts kernel_counts() {
  const Counters& now = counters();
  return {now.compiled, now.loaded, static_cast<double>(now.compile_ns) * 1e-3};
}

}  // namespace hindcast::codegen
