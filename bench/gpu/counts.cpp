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
#include "bench/gpu/measure.h"
#include "bench/gpu/no_card.h"
#include "bench/gpu/workloads.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel/device_library.h"
#include "hindcast/aot_function.h"
#include "hindcast/hindcast.h"
#include "tests/support/machine_code.h"

namespace hindcast::bench::gpu {
namespace {

using base::format;

constexpr double kMiB = 1 << 20;

const NoCard& card() {
  static const NoCard counting;
  return counting;
}

/// Resources of compiled texts on an H100 or an H200. A text is compiled once.
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

constexpr uint64_t kSteps = 3;  // the capture, and two hits

/// ATen's operators in a backward of the current engine.
Calls backward(const Workload& work) {
  work.clear_grads();
  const at::Tensor root = work.forward();
  card().take();
  const AtenCalls calls;
  root.backward(work.incoming);
  return {calls.count(), calls.bytes()};
}

using Call = decltype(Row::function);

/// The same for a function and its backward.
Calls forward_and_backward(const Call& call, const Workload& work) {
  work.clear_grads();
  card().take();
  const AtenCalls calls;
  call(work.leaves).backward(work.incoming);
  return {calls.count(), calls.bytes()};
}

struct Counts {
  Calls stock, left;  // left: besides the kernels
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
  for (uint64_t step = 0; step < kSteps; ++step) {
    counts.left = backward(work);
    counts.launches = card().take();
  }
  if (stats().hits != kSteps - 1) throw std::runtime_error(row.name + " was not hit:\n" + report());
  work.clear_grads();
  return counts;
}

/// Of forward and backward of the row's function, as rows `whole/` measure them (whole.cpp).
Counts counts_of_whole(const Row& row) {
  reset();
  const Workload work = row.build({c10::kCPU, /*zeros=*/true});
  Counts counts;
  counts.floor_bytes = row.whole_floor_bytes;
  counts.stock = forward_and_backward(row.function, work);
  const AotFunction<Call> compiled(row.function, whole_options(/*as_eager_draws=*/false));
  for (uint64_t step = 0; step < kSteps; ++step) {
    counts.left = forward_and_backward(compiled, work);
    counts.launches = card().take();
  }
  if (compiled.stats().hits != kSteps - 1) throw std::runtime_error("whole/" + row.name + " was not hit:\n" + report());
  work.clear_grads();
  return counts;
}

/// Numbers of several rows.
class Range {
 public:
  void add(double number) { numbers_.push_back(number); }
  std::string text() const {
    if (numbers_.empty()) return {};
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

/// A line of the table: rows that differ only in their sizes, and in bytes.
struct Line {
  std::string pattern, type, sizes;
  std::string cells;  // equal in all rows
  Range stock, moved, floor, of_floor;
};

/// pattern/sizes/type
std::array<std::string, 3> parts_of(const std::string& name) {
  const size_t type = name.rfind('/'), sizes = name.rfind('/', type - 1);
  return {name.substr(0, sizes), name.substr(sizes + 1, type - sizes - 1), name.substr(type + 1)};
}

/// Contiguous operands are accessed in units of 16 bytes, a mask in as many elements.
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

// merge_slices does not count: it sums slices, which are few numbers.
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

/// All sizes of a function of the rows seed/, as printed in a line.
const std::string& sizes_of_seed() {
  static const std::string all = [] {
    const std::vector<Row> rows = seed_rows();
    const auto first = parts_of(rows.front().name);
    std::string sizes;
    for (const Row& row : rows) {
      const auto [pattern, own, type] = parts_of(row.name);
      if (pattern == first[0] && type == first[2]) sizes += (sizes.empty() ? "" : ", ") + own;
    }
    return sizes;
  }();
  return all;
}

/// One table, with a line per function and dtype.
class Table {
 public:
  explicit Table(std::string of) : of_(std::move(of)) {}
  void add(const std::string& name, const Counts& counts, std::optional<Uses>& uses);
  /// Empty without a line.
  std::string markdown() const;

 private:
  const std::string of_;
  std::vector<Line> lines_;
};

void Table::add(const std::string& name, const Counts& counts, std::optional<Uses>& uses) {
  const auto [pattern, sizes, type] = parts_of(name);
  const std::string cells = cells_of(counts, uses);
  auto line = std::find_if(lines_.begin(), lines_.end(),
                           [&](const Line& one) { return one.pattern == pattern && one.type == type && one.cells == cells; });
  if (line == lines_.end()) line = lines_.insert(lines_.end(), {.pattern = pattern, .type = type, .cells = cells});
  line->sizes += (line->sizes.empty() ? "" : ", ") + sizes;
  line->stock.add(counts.stock.bytes / kMiB);
  line->moved.add(counts.bytes() / kMiB);
  if (counts.floor_bytes == 0) return;  // unknown
  line->floor.add(counts.floor_bytes / kMiB);
  line->of_floor.add(counts.bytes() / counts.floor_bytes);
}

std::string Table::markdown() const {
  if (lines_.empty()) return {};
  std::string text = format(
      "| {} | sizes | stock's calls | launches | calls left | kernels | bytes of an access | registers | bytes spilled | stock's MiB | MiB "
      "| floor's MiB | of the floor |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      of_);
  for (const Line& line : lines_)
    text += format("| {}, {} | {} | {} | {} | {} | {} | {} |\n", line.pattern, line.type,
                   line.sizes == sizes_of_seed() ? "all six" : line.sizes, line.cells, line.stock.text(), line.moved.text(),
                   line.floor.text(), line.of_floor.text());
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
  const std::regex wanted(only);
  const auto is_wanted = [&](const std::string& name) {
    if (!std::regex_search(name, wanted)) return false;
    std::fprintf(stderr, "%s\n", name.c_str());
    return true;
  };
  Table backwards("the backward of"), whole("forward and backward of");
  for (const std::vector<Row>& some : {rows(), seed_rows(), launch_bound_rows()}) {
    for (const Row& row : some) {
      if (is_wanted(row.name)) backwards.add(row.name, counts_of(row), uses);
    }
  }
  for (const Row& row : seed_rows()) {
    if (const std::string name = "whole/" + row.name; is_wanted(name)) whole.add(name, counts_of_whole(row), uses);
  }
  const std::string first = backwards.markdown(), second = whole.markdown();
  std::fputs((first + (first.empty() || second.empty() ? "" : "\n") + second).c_str(), stdout);
}

}  // namespace hindcast::bench::gpu
