#include "examples/digits/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "examples/digits/verdict.h"

namespace digits {
namespace {

constexpr std::size_t kColumns = 9;
using TableRow = std::array<std::string, kColumns>;

std::string marked(std::string value, bool broken) { return broken ? value + " !" : value; }

TableRow heading() { return {"model", "accuracy", "largest grad diff", "graphs", "hits", "misses", "stock us", "hindcast us", "ratio"}; }

TableRow row_of(const Outcome& outcome, double allowed_difference) {
  const ::hindcast::Stats& stats = outcome.stats;
  const double hits = hit_rate(stats);
  return {
      outcome.name,
      marked(fmt::format("{:.1f}%", 100 * outcome.accuracy), outcome.accuracy <= kLeastAccuracy),
      marked(fmt::format("{:.1e}", outcome.gradients.largest), outcome.gradients.largest > allowed_difference),
      marked(fmt::format("{}", stats.unique_graphs), stats.unique_graphs > kMostGraphs),
      marked(fmt::format("{:.1f}%", 100 * hits), hits <= kLeastHitRate),
      fmt::format("{}", stats.misses),
      fmt::format("{:.0f}", outcome.stock.median_us),
      fmt::format("{:.0f}", outcome.hindcast.median_us),
      fmt::format("{:.2f}", outcome.stock.median_us / outcome.hindcast.median_us),
  };
}

/// The first column is a name, left-aligned; the others are numbers, right-aligned.
std::string aligned(const std::vector<TableRow>& rows) {
  std::array<std::size_t, kColumns> widths{};
  for (const TableRow& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const TableRow& row : rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < kColumns; ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += '\n';
    if (&row == &rows.front()) {
      std::size_t whole = 2 * (kColumns - 1);
      for (const std::size_t width : widths) whole += width;
      text += std::string(whole, '-') + '\n';
    }
  }
  return text;
}

std::string counted(const std::string& title, const std::map<std::string, std::uint64_t>& counts) {
  if (counts.empty()) return "";
  std::string text = title + ":\n";
  for (const auto& [what, count] : counts) text += fmt::format("  {:>4} x {}\n", count, what);
  return text;
}

}  // namespace

std::string table(const std::vector<Outcome>& outcomes, double allowed_difference) {
  std::vector<TableRow> rows = {heading()};
  for (const Outcome& outcome : outcomes) rows.push_back(row_of(outcome, allowed_difference));
  std::string text = aligned(rows);
  text += "(times are medians of one backward; ratio is stock over hindcast, higher is faster)\n";
  for (const Outcome& outcome : outcomes) {
    text += counted(outcome.name + " misses", outcome.stats.misses_by_reason);
    text += counted(outcome.name + " backwards run by the stock engine", outcome.stats.fallbacks_by_reason);
    text += counted(outcome.name + " opaque nodes", outcome.stats.opaque_nodes);
  }
  return text;
}

}  // namespace digits
