#include "bench/gpu/no_card.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <utility>

namespace hindcast::bench::gpu {
namespace {

class Text final : public codegen::cuda::Module {
 public:
  explicit Text(std::string_view text) : text_(std::make_shared<const std::string>(text)) {}
  void* function(const char* name) const override { return &entries_.try_emplace(name, EntryPoint{text_, name}).first->second; }

 private:
  const std::shared_ptr<const std::string> text_;
  mutable std::map<std::string, EntryPoint> entries_;  // who loads it asks, in one thread
};

/// Bytes of the memory that has values, or of the rest. Tensors may share memory, such as two halves, whose spans have gaps.
int64_t bytes_in(c10::ArrayRef<codegen::cuda::Memory> memory, bool has_values) {
  std::vector<std::pair<const char*, const char*>> spans;
  for (const codegen::cuda::Memory& one : memory) {
    const char* const begin = static_cast<const char*>(one.begin);
    if (one.has_values == has_values) spans.emplace_back(begin, begin + one.bytes);
  }
  std::sort(spans.begin(), spans.end());
  int64_t bytes = 0;
  const char* seen = nullptr;
  for (const auto& [begin, end] : spans) {
    if (end <= seen) continue;
    bytes += end - std::max(begin, seen);
    seen = end;
  }
  return bytes;
}

}  // namespace

std::shared_ptr<const codegen::cuda::Module> NoCard::load(std::string_view object) const { return std::make_shared<Text>(object); }

void NoCard::launch(const codegen::cuda::Launch& launch) const {
  if (is_counting_) {
    const std::lock_guard lock(mutex_);
    launches_.entries.push_back(*static_cast<const EntryPoint*>(launch.function));
    launches_.bytes += static_cast<double>(bytes_in(launch.memory, true) + bytes_in(launch.memory, false));
  } else if (next_ != nullptr) {
    codegen::cuda::Launch there = launch;
    there.device = {next_->device(), 0};
    next_->launch(there);
  } else {
    benchmark::DoNotOptimize(launch.argument);
  }
}

Launches NoCard::take() const {
  const std::lock_guard lock(mutex_);
  return std::exchange(launches_, {});
}

}  // namespace hindcast::bench::gpu
