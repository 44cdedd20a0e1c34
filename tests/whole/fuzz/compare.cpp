#include "tests/whole/fuzz/compare.h"

#include <algorithm>
#include <sstream>

#include "tests/support/log_capture.h"
#include "tests/whole/fuzz/function_runtime.h"
#include "tests/whole/fuzz/interpret.h"

namespace hindcast::tests::fuzz {

void Counts::add(const Counts& other) {
  programs += other.programs, steps += other.steps, broken_steps += other.broken_steps;
  calls += other.calls, throwing_calls += other.throwing_calls;
  taken_over += other.taken_over, hits += other.hits, misses += other.misses, graphs += other.graphs, fell_back += other.fell_back;
  opaque_calls += other.opaque_calls, hook_calls += other.hook_calls, segment_guard_failures += other.segment_guard_failures;
  for (const auto& [reason, count] : other.fallbacks) fallbacks[reason] += count;
}

std::string Counts::text() const {
  std::ostringstream out;
  out << programs << " programs, " << steps << " steps (" << broken_steps << " broken in the forward), " << calls << " calls ("
      << throwing_calls << " threw)\n  taken over " << taken_over << ": " << hits << " hits, " << misses << " misses, " << graphs
      << " graphs, " << hook_calls << " hooks, " << opaque_calls << " opaque nodes, " << segment_guard_failures
      << " changed boundaries\n  fell back " << fell_back;
  for (const auto& [reason, count] : fallbacks) out << ", " << reason << ' ' << count;
  return out.str();
}

Options options_of(const Program& program) {
  Options options;
  options.verify = program.verify;
  options.nan_guard = program.seed % 2 == 0;  // must change nothing
  if (program.fused) options.compiler = compilers::fused_through_aten(), options.async = false;
  options.collector = program.visitor ? Collector::Visitor : Collector::Typed;
  options.dynamic = program.dynamic ? Dynamic::Automatic : Dynamic::Never;
  return options;
}

namespace {

// A backward with create_graph has one node in place of many, so that gradients which flow out of its history are summed in another order.
bool sums_in_another_order(const Program& program) {
  return std::any_of(program.calls.begin(), program.calls.end(),
                     [](const Call& call) { return call.create_graph || call.kind == Call::Kind::SquaredGradients; });
}

// Replaces events whose tensors are equal up to rounding by those of the stock engine.
void take_near_ones(const Program& program, const Log& stock, const Log& ours, std::vector<std::string>& events) {
  const bool coarse = program.autocast ||
                      std::any_of(program.types.begin(), program.types.end(), [](const Type& type) { return type.dtype == at::kBFloat16; });
  for (size_t i = 0; i < std::min(events.size(), stock.events().size()); ++i) {
    const std::string& expected = stock.events()[i];
    const std::string name = expected.substr(0, expected.find(" = "));
    if (name == expected || events[i].compare(0, name.size() + 3, name + " = ") != 0) continue;
    const at::Tensor &wanted = stock.tensors()[i], &given = ours.tensors()[i];
    if (wanted.defined() && given.defined() && is_near(given, wanted, /*is_exact=*/false, coarse)) events[i] = expected;
  }
}

}  // namespace

Comparison compare(const Program& program) {
  const Observed stock = interpret(program);
  const LogCapture warnings("");  // each reset() allows the first fallback to warn again
  hindcast::reset();
  Observed ours;
  {
    const Guard guard = hindcast::enable(options_of(program));
    ours = interpret(program);
  }
  const Stats stats = hindcast::stats();

  Comparison result;
  if (sums_in_another_order(program)) take_near_ones(program, stock.log, ours.log, ours.events);
  result.difference = first_difference(stock.events, ours.events);
  if (stats.refused_graphs > 0) {
    result.difference += "  hindcast refused " + std::to_string(stats.refused_graphs) + " of its own graphs\n" + warnings.text();
  }
  Counts& counts = result.counts;
  counts.programs = 1;
  counts.steps = stock.steps, counts.broken_steps = stock.broken_steps;
  counts.calls = stock.calls, counts.throwing_calls = stock.throwing_calls;
  counts.taken_over = stats.backwards, counts.hits = stats.hits, counts.misses = stats.misses, counts.graphs = stats.unique_graphs;
  counts.opaque_calls = stats.opaque_calls, counts.hook_calls = stats.hook_calls;
  counts.segment_guard_failures = stats.segment_guard_failures;
  counts.fallbacks = stats.fallbacks_by_reason;
  for (const auto& [reason, count] : stats.fallbacks_by_reason) counts.fell_back += count;
  return result;
}

}  // namespace hindcast::tests::fuzz
