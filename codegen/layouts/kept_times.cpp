#include "codegen/layouts/kept_times.h"

#include "base/fork.h"
#include "codegen/store/kernel_store.h"
#include "codegen/store/store_folder.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

namespace hindcast::codegen {
namespace {

std::string model_of_cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line;
  }
  return "";
}

const std::string& machine() {
  static constinit base::MadeOnce<const std::string> text;
  return text.by([] {
    const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
    return model_of_cpu() + "\n" + std::to_string(std::thread::hardware_concurrency()) + " threads, LibTorch " TORCH_VERSION ", " +
           at::get_cpu_capability() + ", oneDNN " + (limit != nullptr ? limit : "unlimited");
  });
}

std::string_view bytes_of(const std::vector<int64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

store::KernelKey key_of(std::string_view what, const std::vector<int64_t>& sizes) {
  const std::vector<int64_t> settings = settings_of_times();
  return store::key_of({"CPU times", what, machine(), bytes_of(settings), bytes_of(sizes)});
}

store::KernelStore& store_on_disk() {
  static constinit base::MadeOnce<store::KernelStore> store;
  return store.by([] { return store::KernelStore({store::default_store_folder()}); });
}

}  // namespace

std::vector<int64_t> settings_of_times() {
  const auto& context = at::globalContext();
  return {at::get_num_threads(), context.userEnabledMkldnn(),
          static_cast<int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV))};
}

// File content: the numbers of measurements and of processes, then the times.
std::optional<KeptTimes> kept_times(std::string_view what, const std::vector<int64_t>& sizes, size_t count) {
  const auto bytes = store_on_disk().read(key_of(what, sizes));
  if (!bytes || bytes->size() != (2 + count) * sizeof(double)) return std::nullopt;
  std::vector<double> numbers(2 + count);
  std::memcpy(numbers.data(), bytes->data(), bytes->size());
  return KeptTimes{{numbers.begin() + 2, numbers.end()}, static_cast<int>(numbers[0]), static_cast<int>(numbers[1])};
}

void keep_times(std::string_view what, const std::vector<int64_t>& sizes, const KeptTimes& times) {
  std::vector<double> numbers = {static_cast<double>(times.measurements), static_cast<double>(times.processes)};
  numbers.insert(numbers.end(), times.times.begin(), times.times.end());
  store_on_disk().write(key_of(what, sizes), {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)});
}

}  // namespace hindcast::codegen
