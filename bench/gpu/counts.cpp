#include "bench/gpu/counts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <regex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/format.h"
#include "bench/gpu/aten_calls.h"
#include "bench/gpu/no_card.h"
#include "bench/gpu/workloads.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel/device_library.h"
#include "engine/hindcast.h"
#include "tests/support/machine_code.h"

namespace hindcast::bench::gpu {
namespace {

using base::format;

constexpr double kMiB = 1 << 20;

const NoCard& card() {
  static const NoCard counting;
  return counting;
}

/// What the code of texts needs on an H100 or an H200. A text is compiled once.
class Uses {
 public:
  explicit Uses(const codegen::cuda::Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  const tests::KernelUse& of(const EntryPoint& entry) {
    const auto [found, is_new] = by_text_.try_emplace(*entry.text);
    if (is_new)
      found->second = tests::uses_in(nvrtc_.compile(*entry.text, codegen::device_library(), codegen::cuda::kernel_options(90)).log);
    return found->second.at(entry.name);
  }

 private:
  const codegen::cuda::Nvrtc& nvrtc_;
  std::map<std::string, std::map<std::string, tests::KernelUse>> by_text_;
};

struct Calls {
  int64_t count = 0;
  double bytes = 0;
};

/// Of ATen's operators in a backward of the engine that is there now.
Calls backward(const Workload& work) {
  work.clear_grads();
  const at::Tensor root = work.forward();
  card().take();
  const AtenCalls calls;
  root.backward(work.incoming);
  return {calls.count(), calls.bytes()};
}

struct Counts {
  Calls stock, left;  // left: beside the kernels
  Launches launches;
  double floor_bytes = 0;

  double bytes() const { return launches.bytes + left.bytes; }
};

Counts counts_of(const Row& row) {
  reset();
  const Workload work = row.build({c10::kCPU, /*zeros=*/true});
  Counts counts;
  counts.floor_bytes = work.floor_bytes;
  counts.stock = backward(work);
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  const auto guard = enable(options);
  constexpr uint64_t kSteps = 3;
  for (uint64_t step = 0; step < kSteps; ++step) {
    counts.left = backward(work);
    counts.launches = card().take();
  }
  if (stats().hits != kSteps - 1) throw std::runtime_error(row.name + " was not hit:\n" + report());
  work.clear_grads();
  return counts;
}

/// Numbers of several rows.
class Range {
 public:
  void add(double number) { numbers_.push_back(number); }
  std::string text() const {
    const auto [least, most] = std::minmax_element(numbers_.begin(), numbers_.end());
    const std::string from = text_of(*least), to = text_of(*most);
    return from == to ? from : from + " to " + to;
  }

 private:
  static std::string text_of(double number) {
    return number < 10 ? format("{:.2f}", number) : number < 100 ? format("{:.1f}", number) : format("{:.0f}", number);
  }

  std::vector<double> numbers_;
};

/// A line of the table: rows that differ in their sizes, and in bytes, alone.
struct Line {
  std::string pattern, type, sizes;
  std::string cells;  // that are the same
  Range stock, moved, floor, of_floor;
};

/// pattern/sizes/type
std::array<std::string, 3> parts_of(const std::string& name) {
  const size_t type = name.rfind('/'), sizes = name.rfind('/', type - 1);
  return {name.substr(0, sizes), name.substr(sizes + 1, type - sizes - 1), name.substr(type + 1)};
}

/// What lies along in memory goes in accesses of 16 bytes, of a mask in as many elements.
bool is_by_vectors(const std::string& entry) { return !entry.ends_with("_each") && entry != "nest_any" && entry != "tiles"; }

std::string kernels_in(const Launches& launches) {
  std::vector<std::pair<std::string, size_t>> counts;  // in the order in which they came
  for (const EntryPoint& one : launches.entries) {
    auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == one.name; });
    if (found == counts.end()) found = counts.insert(counts.end(), {one.name, 0});
    found->second += 1;
  }
  std::string text;
  for (const auto& [name, count] : counts)
    text += format("{}{}`{}`", text.empty() ? "" : ", ", count == 1 ? "" : format("{} ", count), name);
  return text.empty() ? "none" : text;
}

// Numbers of slices, which merge_slices adds up, are few.
std::string width_of(const Launches& launches) {
  bool has_vectors = false, has_elements = false;
  for (const EntryPoint& one : launches.entries) {
    if (one.name != "merge_slices") (is_by_vectors(one.name) ? has_vectors : has_elements) = true;
  }
  return has_vectors && has_elements ? "16, one element" : has_vectors ? "16" : has_elements ? "one element" : "";
}

std::string registers_of(const Launches& launches, std::optional<Uses>& uses) {
  if (!uses) return " | ";
  int registers = 0, spilled_bytes = 0;
  for (const EntryPoint& one : launches.entries) {
    registers = std::max(registers, uses->of(one).registers);
    spilled_bytes = std::max(spilled_bytes, uses->of(one).spilled_bytes);
  }
  return format("{} | {}", registers, spilled_bytes);
}

std::string cells_of(const Counts& counts, std::optional<Uses>& uses) {
  return format("{} | {} | {} | {} | {} | {}", counts.stock.count, counts.launches.entries.size(), counts.left.count,
                kernels_in(counts.launches), width_of(counts.launches), registers_of(counts.launches, uses));
}

void add(std::vector<Line>& lines, const Row& row, const Counts& counts, std::optional<Uses>& uses) {
  const auto [pattern, sizes, type] = parts_of(row.name);
  const std::string cells = cells_of(counts, uses);
  auto line = std::find_if(lines.begin(), lines.end(),
                           [&](const Line& one) { return one.pattern == pattern && one.type == type && one.cells == cells; });
  if (line == lines.end()) line = lines.insert(lines.end(), {.pattern = pattern, .type = type, .cells = cells});
  line->sizes += (line->sizes.empty() ? "" : ", ") + sizes;
  line->stock.add(counts.stock.bytes / kMiB);
  line->moved.add(counts.bytes() / kMiB);
  line->floor.add(counts.floor_bytes / kMiB);
  line->of_floor.add(counts.bytes() / counts.floor_bytes);
}

std::string markdown_of(const std::vector<Line>& lines) {
  std::string text =
      "| the backward of | sizes | stock's calls | launches | calls left | kernels | bytes of an access | registers | bytes spilled "
      "| stock's MiB | MiB | floor's MiB | of the floor |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Line& line : lines)
    text += format("| {}, {} | {} | {} | {} | {} | {} | {} |\n", line.pattern, line.type, line.sizes, line.cells, line.stock.text(),
                   line.moved.text(), line.floor.text(), line.of_floor.text());
  return text;
}

}  // namespace

void print_counts(const std::string& only) {
  codegen::cuda::install_machine(card());
  std::string why_not;
  std::optional<Uses> uses;
  if (const auto* const nvrtc = codegen::cuda::Nvrtc::get(&why_not)) {
    uses.emplace(*nvrtc);
  } else {
    std::fprintf(stderr, "registers are not known: %s\n", why_not.c_str());
  }
  std::vector<Row> all;
  for (const std::vector<Row>& some : {rows(), seed_rows(), launch_bound_rows()}) all.insert(all.end(), some.begin(), some.end());
  std::vector<Line> lines;
  for (const Row& row : all) {
    if (!std::regex_search(row.name, std::regex(only))) continue;
    std::fprintf(stderr, "%s\n", row.name.c_str());
    add(lines, row, counts_of(row), uses);
  }
  std::fputs(markdown_of(lines).c_str(), stdout);
}

}  // namespace hindcast::bench::gpu
