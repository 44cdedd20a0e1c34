#include "engine/diagnosis/report.h"

#include "base/format.h"
#include "engine/counters/fallback.h"
#include "engine/diagnosis/opaque_nodes.h"
#include "engine/diagnosis/step_times.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace hindcast::engine {
namespace {

using base::format;
using Counts = std::map<std::string, std::uint64_t>;

constexpr size_t kLeastNameWidth = 16;

uint64_t total(const Counts& counts) {
  uint64_t sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

std::string percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? "" : format("{:.1f}%", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

class ReportText {
 public:
  explicit ReportText(size_t name_width) : name_width_(name_width) {}

  void section(std::string_view title) { text_ += format("{}{}\n", text_.empty() ? "" : "\n", title); }
  void row(std::string_view name, std::string_view value, std::string_view remark = "") {
    std::string line = format("  {:<{}}  {:>12}", name, name_width_, value);
    if (!remark.empty()) line += format("  {}", remark);
    text_ += line + "\n";
  }
  void row(std::string_view name, uint64_t count, std::string_view remark = "") { row(name, std::to_string(count), remark); }
  void time(std::string_view name, double us, std::string_view remark = "") { row(name, format("{:.1f} us", us), remark); }
  void line(std::string_view text) { text_ += format("  {}\n", text); }
  std::string take() && { return std::move(text_); }

 private:
  size_t name_width_;
  std::string text_;
};

size_t widest_name(const Stats& stats) {
  size_t width = kLeastNameWidth;
  for (const Counts* counts : {&stats.misses_by_reason, &stats.fallbacks_by_reason, &stats.opaque_nodes}) {
    for (const auto& [name, count] : *counts) width = std::max(width, name.size());
  }
  return width;
}

void add_backwards(ReportText& text, const Stats& stats) {
  text.section("backwards");
  text.row("taken over", stats.backwards);
  const uint64_t on_stock = total(stats.fallbacks_by_reason);
  text.row("stock engine", on_stock);
  if (stats.backwards == 0 && on_stock == 0) {
    text.line("No backward came: a guard of enable() must be alive on the thread that calls backward(), or one of enable_process().");
    text.line("Compiled functions and torch.compile need no guard, and are not counted here.");
  }
}

void add_cache(ReportText& text, const Stats& stats) {
  const uint64_t looked_up = stats.hits + stats.misses;
  text.section("cache");
  text.row("graphs captured", stats.unique_graphs);
  text.row("hits", stats.hits, percent(stats.hits, looked_up));
  text.row("misses", stats.misses, percent(stats.misses, looked_up));
  text.row("kept bytes", stats.kept_bytes, format("in {} graphs; {} went to make room", stats.kept_graphs, stats.evicted_graphs));
  if (stats.dropped_checks != 0)
    text.row("dropped checks", stats.dropped_checks, "graphs that stay with ATen: Options::verify had no room to check their kernels");
  if (stats.refused_graphs != 0) text.row("refused graphs", stats.refused_graphs, "captures whose replay was wrong: please report them");
  if (stats.non_finite_backwards != 0)
    text.row("not finite", stats.non_finite_backwards, "backwards with infinities or NaN in gradients: see the log");
  if (stats.fused_graphs != 0) text.row("fused graphs", stats.fused_graphs, "run with kernels of their own");
  if (stats.compiler_failures != 0)
    text.row("compiler failures", stats.compiler_failures, "graphs that the compiler did not compile: replayed through ATen");
  if (stats.segment_guard_failures != 0) {
    text.row("segment guards", stats.segment_guard_failures, "times a hook or an opaque node changed what later steps rely on");
  }
}

void add_reasons(ReportText& text, const Stats& stats, const std::vector<std::string>& recent_misses) {
  if (!stats.misses_by_reason.empty()) {
    text.section("misses by reason");
    for (const auto& [reason, count] : stats.misses_by_reason) text.row(reason, count);
  }
  if (!recent_misses.empty()) {
    text.section("last misses, the latest at the end");
    for (const std::string& sentence : recent_misses) text.line(sentence);
  }
  if (!stats.fallbacks_by_reason.empty()) {
    text.section("fallbacks by reason");
    for (const auto& [reason, count] : stats.fallbacks_by_reason) {
      const auto known = find_fallback_reason(reason);
      text.row(reason, count, known ? explain(*known) : "");
    }
  }
}

void add_opaque_nodes_and_hooks(ReportText& text, const Stats& stats) {
  if (stats.opaque_nodes.empty() && stats.opaque_calls == 0 && stats.hook_calls == 0) return;
  text.section("opaque nodes and hooks");
  for (const auto& [node, count] : stats.opaque_nodes) {
    const auto reason = stats.opaque_reasons.find(node);
    text.row(node, count, "captured as a call of itself" + (reason == stats.opaque_reasons.end() ? "" : ": " + reason->second));
  }
  for (const auto& [node, count] : stats.opaque_nodes) {
    if (const std::string_view advice = advice_on_opaque_node(node); !advice.empty()) text.line(advice);
  }
  text.row("opaque calls", stats.opaque_calls);
  text.row("hook calls", stats.hook_calls);
}

void add_cuda_graphs(ReportText& text, const Stats& stats) {
  if (stats.cuda_graphs == 0 && stats.without_cuda_graph.empty()) return;
  text.section("CUDA graphs");
  text.row("recorded", stats.cuda_graphs);
  text.row("launched", stats.cuda_graph_launches);
  text.row("kept bytes", stats.cuda_graph_bytes, "of device memory, beside what the stock engine takes");
  for (const auto& [reason, count] : stats.without_cuda_graph) text.row("step by step", count, reason);
}

void add_functions(ReportText& text, const Stats& stats) {
  if (stats.left_calls == 0 && stats.eager_functions.empty()) return;
  text.section("compiled functions");
  for (const auto& [reason, count] : stats.eager_functions) text.row("eager functions", count, reason);
  if (stats.left_calls == 0) return;
  text.row("left calls", stats.left_calls, "ran the function with a single check: programs gained nothing on calls like these");
}

void add_memory(ReportText& text, const Stats& stats) {
  if (stats.reused_buffers + stats.fresh_buffers == 0) return;
  text.section("memory of large results");
  text.row("reused", stats.reused_buffers, percent(stats.reused_buffers, stats.reused_buffers + stats.fresh_buffers));
  text.row("fresh", stats.fresh_buffers);
  text.row("returned", stats.returned_buffers, "to LibTorch's allocator");
  text.row("held bytes", stats.held_bytes, format("in {} free buffers; hindcast::trim() returns them", stats.held_buffers));
}

void add_times(ReportText& text, const Stats& stats) {
  text.section("times");
  text.time("collect", stats.collect_us, format("{:.1f} ns for each of {} nodes", stats.ns_per_node(), stats.nodes));
  text.time("trace", stats.trace_us, format("{} misses", stats.misses));
  text.time("run", stats.run_us, "replaying");
}

void add_costliest_steps(ReportText& text) {
  const auto steps = costliest_steps(10);
  if (steps.empty()) return;
  text.section("costliest steps (measured while the log perf is on)");
  for (const StepTime& step : steps) {
    const double of_copy = step.backend == nullptr ? 0 : 100 * step.bytes / step.us / step.backend->copy_bandwidth();
    text.line(format("{:10.1f} us  {:6} times  {:7.2f} us each  {:6.1f} KiB each  {:5.1f}% of a copy's bandwidth  graph {}: {}", step.us,
                     step.calls, step.us / static_cast<double>(step.calls), step.bytes / 1024 / static_cast<double>(step.calls), of_copy,
                     step.graph, step.name));
  }
}

}  // namespace

std::string report(const Stats& stats, const std::vector<std::string>& recent_misses) {
  ReportText text(widest_name(stats));
  add_backwards(text, stats);
  add_cache(text, stats);
  add_reasons(text, stats, recent_misses);
  add_opaque_nodes_and_hooks(text, stats);
  add_cuda_graphs(text, stats);
  add_functions(text, stats);
  add_memory(text, stats);
  add_times(text, stats);
  add_costliest_steps(text);
  return std::move(text).take();
}

}  // namespace hindcast::engine
