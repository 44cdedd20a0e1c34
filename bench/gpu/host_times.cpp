#include "bench/gpu/host_times.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu/asked.h"
#include "bench/gpu/counted_machine.h"
#include "bench/gpu/idle_card.h"
#include "bench/gpu/lane.h"
#include "bench/gpu/no_card.h"
#include "bench/gpu/workloads.h"
#include "bench/summary.h"
#include "codegen/kernel/backend.h"

namespace hindcast::bench::gpu {
namespace {

using codegen::AccessPattern;
using codegen::BodyOp;
using codegen::Extent;
using codegen::Group;
using codegen::Operand;

/// A group over a matrix, and its operands.
struct Kernel {
  std::shared_ptr<capture::SymbolTable> symbols = capture::SymbolTable::make();
  Group group;
  codegen::Slots loads;

  Kernel(int64_t rows, int64_t columns) { group.domain = {symbols->integer(rows), symbols->integer(columns)}; }
  void load(const at::Tensor& tensor, std::vector<int8_t> dim_of_axis, AccessPattern pattern = AccessPattern::Dense) {
    group.body.loads.push_back({tensor.scalar_type(), pattern});
    group.loads.push_back(capture::ValueId{static_cast<uint32_t>(loads.size())});
    group.accesses.push_back({{}, std::move(dim_of_axis)});
    loads.push_back(tensor);
  }
  void store(Operand value) {
    group.body.stores.push_back({value, at::kFloat, Extent::Element});
    group.stores.push_back(capture::ValueId{100 + static_cast<uint32_t>(group.stores.size())});
    group.shapes.push_back(group.domain);
    group.orders.emplace_back();
  }
};

constexpr Operand kX{Operand::Kind::Load, 0}, kY{Operand::Kind::Load, 1};
Operand result(uint32_t op) { return {Operand::Kind::Result, op}; }

// Of small tensors, which are quick to allocate.
Kernel dense() {
  Kernel kernel(8, 128);
  kernel.load(at::randn({8, 128}), {0, 1});
  kernel.load(at::randn({8, 128}), {0, 1});
  kernel.group.body.ops = {{"mul", {kX, kY}}};
  kernel.store(result(0));
  return kernel;
}

Kernel nest() {
  Kernel kernel(8, 128);
  kernel.load(at::randn({8, 128}), {0, 1});
  kernel.load(at::randn({128}), {-1, 0});
  kernel.group.body.ops = {{"add", {kX, kY}}};
  kernel.store(result(0));
  return kernel;
}

Kernel by_rows() {
  Kernel kernel(8, 128);
  kernel.group.columns = 2;
  kernel.group.body.by_rows = true;
  kernel.load(at::randn({8, 128}), {0, 1});
  kernel.load(at::randn({8, 128}), {0, 1});
  kernel.group.body.ops = {{"mul", {kX, kY}},
                           {{}, {result(0)}, BodyOp::Kind::Reduction, {codegen::Reduction::Kind::Sum, codegen::Reduction::Over::Row}},
                           {"sub", {result(0), result(1)}}};
  kernel.store(result(2));
  return kernel;
}

void measure_call(benchmark::State& state, const Kernel& kernel, bool layouts_change) {
  const codegen::Backend& backend = *codegen::backend_of(c10::kCPU);
  std::string why_not;
  const auto compiled = backend.kernel(kernel.group.body, why_not);
  if (!compiled) throw std::runtime_error(why_not);
  const auto call = backend.call(kernel.group, compiled);
  capture::Env env;
  capture::Evaluator(*kernel.symbols).evaluate(capture::bindings_at_capture(*kernel.symbols), env);
  codegen::Step step;
  codegen::Slots slots = kernel.loads;
  // More layouts than a call keeps: rows with ever larger gaps.
  std::vector<at::Tensor> first;
  for (int64_t i = 0; i < (layouts_change ? 8 : 1); ++i)
    first.push_back(i == 0 ? slots[0] : at::randn({slots[0].size(0), slots[0].size(1) + 4 * i}).narrow(1, 0, slots[0].size(1)));
  for (uint32_t i = 0; i < slots.size(); ++i) step.inputs.push_back({i, false});
  step.outputs.push_back(static_cast<uint32_t>(slots.size()));
  slots.emplace_back();
  size_t next = 0;
  for (auto _ : state) {
    slots[0] = first[next++ % first.size()];
    call->run(step, slots, env);
    slots.back().reset();
  }
}

/// The backward of a row, alternately under both engines. Kernels write nothing, so results are not compared.
void measure_hits(benchmark::State& state, const Row& row, int rounds) {
  constexpr int kSteps = 50;  // of each lane in a round
  const c10::Device here = c10::kCPU;
  reset();
  at::set_num_threads(1);
  at::globalContext().setFlushDenormal(true);
  at::globalContext().setUserEnabledMkldnn(false);  // what it keeps and frees in a forward makes a following hit up to 4 us slower
  const Workload work = row.build({here, /*zeros=*/true});
  Lane stock, ours{with_kernels()};
  for (Lane* lane : {&stock, &ours}) {  // the capture, and warm-up
    run_steps(*lane, work, here, kSteps);
    lane->forget_times();
  }
  const Asked of_stock = asked_by(stock, work, here, 0), asked = asked_by(ours, work, here, 0);
  const Stats before = stats();
  for (auto _ : state) {
    for (int round = 0; round < rounds; ++round) {
      run_steps(stock, work, here, kSteps);
      run_steps(ours, work, here, kSteps);
    }
    state.SetIterationTime(1e-6 * summarize(ours.host_us).median);
  }
  const Stats after = stats();
  if (after.hits - before.hits != static_cast<uint64_t>(rounds * kSteps)) return state.SkipWithError("not all steps were hits");
  const double us = summarize(ours.host_us).median, a_node = ns_a_node(before, after);
  auto& counters = state.counters;
  counters["stock_host_us"] = summarize(stock.host_us).median;
  counters["hindcast_host_us"] = us;
  counters["ns_a_node"] = a_node;
  report_asked(state, of_stock, asked, us);
  const double launches_us = us - asked.us() - 1e-3 * a_node * static_cast<double>(asked.nodes);
  if (asked.kernels > 0) counters["us_a_kernel"] = launches_us / static_cast<double>(asked.kernels);
}

std::vector<Row> small_rows() {
  std::vector<Row> small = launch_bound_rows();
  for (const Row& row : rows()) {
    if (row.name.find("/64x256/") != std::string::npos) small.push_back(row);
  }
  return small;
}

}  // namespace

void register_host_times(int rounds) {
  std::string why_not;
  const codegen::cuda::Machine* const card = idle_card(&why_not);
  if (card == nullptr) std::fprintf(stderr, "launches end before the card, which cannot be had here: %s\n", why_not.c_str());
  static const NoCard machine(card);
  install_counted(machine);
  struct Call {
    const char* name;
    Kernel (*make)();
    bool layouts_change = false;
  };
  const Call calls[] = {{"host/dense", dense},
                        {"host/nest", nest},
                        {"host/nest_of_new_layout", nest, true},
                        {"host/rows", by_rows},
                        {"host/rows_of_new_layout", by_rows, true}};
  for (const Call& call : calls) {
    benchmark::RegisterBenchmark(call.name, [call](benchmark::State& state) { measure_call(state, call.make(), call.layouts_change); })
        ->Unit(benchmark::kMicrosecond)
        ->Repetitions(9)
        ->ReportAggregatesOnly();
  }
  for (const Row& row : small_rows()) {
    benchmark::RegisterBenchmark(("hit/" + row.name).c_str(), [=](benchmark::State& state) { measure_hits(state, row, rounds); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(1);
  }
}

}  // namespace hindcast::bench::gpu
