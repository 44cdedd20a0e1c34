#include "bench/gpu/no_card.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/machine.h"
#include "codegen/kernel/backend.h"

namespace hindcast::bench::gpu {
namespace {

using codegen::AccessPattern;
using codegen::BodyOp;
using codegen::Extent;
using codegen::Group;
using codegen::Operand;

class EmptyModule final : public codegen::cuda::Module {
 public:
  void* function(const char* name) const override { return const_cast<char*>(name); }
};

class NoCard final : public codegen::cuda::Machine {
 public:
  c10::DeviceType device() const override { return c10::kCPU; }
  const codegen::cuda::Limits& limits() const override { return limits_; }
  std::string_view identity() const override { return "no card"; }
  std::string compile(std::string_view text) const override { return std::string(text); }
  std::shared_ptr<const codegen::cuda::Module> load(std::string_view /*object*/) const override { return std::make_shared<EmptyModule>(); }
  void launch(const codegen::cuda::Launch& launch) const override { benchmark::DoNotOptimize(launch.argument); }

 private:
  const codegen::cuda::Limits limits_;
};

/// A group over a matrix, and what it reads.
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

// Of small tensors: their memory is soon found.
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

Kernel rows() {
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

void measure(benchmark::State& state, const Kernel& kernel) {
  const codegen::Backend& backend = *codegen::backend_of(c10::kCPU);
  std::string why_not;
  const auto compiled = backend.kernel(kernel.group.body, why_not);
  if (!compiled) throw std::runtime_error(why_not);
  const auto call = backend.call(kernel.group, compiled);
  capture::Env env;
  capture::Evaluator(*kernel.symbols).evaluate(capture::bindings_at_capture(*kernel.symbols), env);
  codegen::Step step;
  codegen::Slots slots = kernel.loads;
  for (uint32_t i = 0; i < slots.size(); ++i) step.inputs.push_back({i, false});
  step.outputs.push_back(static_cast<uint32_t>(slots.size()));
  slots.emplace_back();
  for (auto _ : state) {
    call->run(step, slots, env);
    slots.back().reset();
  }
}

}  // namespace

void register_host_times() {
  static const NoCard machine;
  codegen::cuda::install_machine(machine);
  using Row = std::pair<const char*, Kernel (*)()>;
  for (const auto& [name, make] : {Row{"host/dense", dense}, {"host/nest", nest}, {"host/rows", rows}}) {
    benchmark::RegisterBenchmark(name, [make = make](benchmark::State& state) { measure(state, make()); })
        ->Unit(benchmark::kMicrosecond)
        ->Repetitions(9)
        ->ReportAggregatesOnly();
  }
}

}  // namespace hindcast::bench::gpu
