#include "tests/whole/fuzz/compare_functions.h"

#include <algorithm>
#include <sstream>

#include "tests/support/log_capture.h"
#include "tests/whole/fuzz/compare.h"
#include "tests/whole/fuzz/function_runtime.h"
#include "tests/whole/fuzz/functions.h"
#include "tests/whole/fuzz/interpret.h"
#include "tests/whole/fuzz/ops.h"

namespace hindcast::tests::fuzz {
namespace {

/// Rounding is far smaller in float64; what is wrong stays wrong.
Program in_double(Program program) {
  const auto wide = [](at::ScalarType type) { return type == at::kComplexFloat ? at::kComplexDouble : at::kDouble; };
  for (Type& type : program.types) type.dtype = wide(type.dtype);
  for (Instr& instr : program.instrs) {
    if (op(instr.op).rule == Rule::Cast) instr.k = static_cast<int64_t>(wide(at::ScalarType(instr.k)));
  }
  return program;
}

Nearness nearness_of(const Program& program, bool kernels) {
  Nearness nearness;
  for (const FunctionPart& part : functions_of(program)) nearness.zeros_for_nothing |= part.writes || part.shares || part.draws;
  nearness.more_hooks = std::any_of(program.calls.begin(), program.calls.end(), [](const Call& call) { return !call.inputs.empty(); });
  nearness.exact_results = !kernels && !program.descend;
  nearness.coarse = program.autocast ||
                    std::any_of(program.types.begin(), program.types.end(), [](const Type& type) { return type.dtype == at::kBFloat16; });
  return nearness;
}

struct Run {
  bool guarded = false, kernels = false;
};

Observed run_compiled(const Program& program, const Run& run, std::string& refused, uint64_t& fused) {
  AotOptions options = aot_options_of(program);
  if (run.kernels) options.fw_compiler = options.bw_compiler = compilers::fused();
  const LogCapture warnings("");
  hindcast::reset();
  Options engine = options_of(program);
  engine.enabled = run.guarded;
  if (run.kernels) engine.compiler = compilers::fused(), engine.async = false;
  const Guard guard = hindcast::enable(engine);
  Observed observed = interpret(program, options);
  const Stats stats = hindcast::stats();
  fused += stats.fused_graphs;
  if (stats.refused_graphs > 0 || stats.compiler_failures > 0) refused = "  hindcast refused a graph of its own\n" + warnings.text();
  return observed;
}

void add(AotStats& sum, const AotStats& stats) {
  sum.calls += stats.calls, sum.hits += stats.hits, sum.traces += stats.traces, sum.eager += stats.eager;
  sum.backwards += stats.backwards;
}

}  // namespace

void FunctionCounts::add(const FunctionCounts& other) {
  programs += other.programs, functions += other.functions, writing += other.writing, drawing += other.drawing, sharing += other.sharing;
  runs += other.runs, exact_runs += other.exact_runs, rounded_runs += other.rounded_runs, fused += other.fused;
  fuzz::add(calls, other.calls);
  for (const auto& [reason, count] : other.stopped) stopped[reason] += count;
}

std::string FunctionCounts::text() const {
  std::ostringstream out;
  out << programs << " programs with " << functions << " functions (" << writing << " write, " << drawing << " draw, " << sharing
      << " take views), " << runs << " runs (" << exact_runs << " to the bit, " << rounded_runs << " near in float64 only), " << fused
      << " fused\n  " << calls.calls << " calls: " << calls.hits << " hits, " << calls.traces << " traces, " << calls.eager
      << " as they are; " << calls.backwards << " backward programs\n  not compared to the end";
  for (const auto& [reason, count] : stopped) out << ", " << reason << ' ' << count;
  return out.str();
}

AotOptions aot_options_of(const Program& program) {
  const FunctionSettings& settings = program.functions;
  AotOptions options;
  options.fw_compiler = options.bw_compiler = settings.fused ? compilers::fused_through_aten() : compilers::eager();
  options.partition = settings.min_cut ? partition::min_cut : partition::standard;
  if (settings.saves_little) options.memory_budget = 0;
  options.check_every = settings.checked ? 1 : 0;
  options.dynamic = settings.dynamic ? Dynamic::Automatic : Dynamic::Never;
  options.fallback_random = true;
  options.async = false;
  return options;
}

FunctionComparison compare_functions(const Program& program, bool kernels) {
  FunctionComparison result;
  FunctionCounts& counts = result.counts;
  counts.programs = 1;
  for (const FunctionPart& part : functions_of(program)) {
    ++counts.functions, counts.writing += part.writes, counts.drawing += part.draws, counts.sharing += part.shares;
  }
  const Observed stock = interpret(program);
  for (const bool guarded : {false, true}) {
    if (guarded && !program.functions.guarded) continue;
    const Run run{guarded, kernels};
    std::string refused;
    const Observed ours = run_compiled(program, run, refused, counts.fused);
    ++counts.runs;
    fuzz::add(counts.calls, ours.functions);
    FunctionDifference found;
    if (stock.events == ours.events) {
      ++counts.exact_runs;
    } else {
      found = compare_functions(stock.log, ours.log, nearness_of(program, kernels));
    }
    if (!found.stopped.empty()) ++counts.stopped[found.stopped];
    if (!found.text.empty()) {
      const Program wide = in_double(program);
      const FunctionDifference still =
          compare_functions(interpret(wide).log, run_compiled(wide, run, refused, counts.fused).log, nearness_of(wide, kernels));
      if (still.text.empty()) ++counts.rounded_runs;
      if (!still.text.empty()) result.difference += found.text;
    }
    if (!refused.empty()) result.difference += refused;
    if (!result.difference.empty()) {
      result.difference = (guarded ? "under a guard, " : "") + result.difference;
      break;
    }
  }
  return result;
}

}  // namespace hindcast::tests::fuzz
