// Functions compiled ahead of time, on the fake card: forward and backward programs are kernels there, as on CUDA. Results and gradients
// equal those of the eager functions up to rounding; everything waits for what it reads.

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hindcast/aot.h"
#include "hindcast/graph.h"
#include "hindcast/hindcast.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/engine/cuda_graphs/fake_card.h"

namespace hindcast::tests::aot_test {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

const std::vector<std::string> kNothing;
constexpr uint64_t kSteps = 10;  // with graphs, the last ones launch them

/// What runs the backward around the function's own.
enum class Around { StockEngine, Kernels, CudaGraphs };
constexpr Around kAll[] = {Around::StockEngine, Around::Kernels, Around::CudaGraphs};
const char* name_of(Around around) {
  return around == Around::StockEngine ? "the stock engine" : around == Around::Kernels ? "kernels" : "CUDA graphs";
}

std::optional<Guard> guard_of(Around around) {
  if (around == Around::StockEngine) return std::nullopt;
  return enable({.compiler = compilers::fused(), .async = false, .cuda_graphs = around == Around::CudaGraphs});
}

AotOptions with_kernels() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.async = false;
  return options;
}

Tensor constant(uint64_t seed, at::IntArrayRef sizes) { return leaf(seed, fake(), sizes).detach(); }

/// Each element of each result is weighted by a different factor.
Tensor loss_of(const Tensors& results) {
  Tensor loss;
  for (const Tensor& result : results) {
    if (!result.requires_grad()) continue;
    const Tensor part = (result * constant(7, result.sizes())).sum();
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

/// On the stream `side`, which the default stream synchronizes with before and after.
Tensors on_side(int side, const Function& function, const Tensors& inputs) {
  order(stream(0), stream(side));
  Tensors results;
  {
    const c10::StreamGuard guard(stream(side));
    results = function(inputs);
  }
  order(stream(side), stream(0));
  return results;
}

struct Seen {
  Tensors tensors;  // on the CPU: results, then gradients of the inputs
  uint64_t forward_launches = 0, backward_launches = 0;
};

/// `guard` is called after the forward.
Seen run(const Function& function, const Tensors& inputs, int side, const std::function<std::optional<Guard>()>& guard) {
  at::manual_seed(11);
  for (const Tensor& input : inputs) {
    if (input.requires_grad()) input.mutable_grad().reset();
  }
  Seen seen;
  const uint64_t before = cuda::launch_counts().launches;
  const Tensors results = on_side(side, function, inputs);
  const uint64_t between = cuda::launch_counts().launches;
  {
    const std::optional<Guard> around = guard();
    loss_of(results).backward();
  }
  seen.forward_launches = between - before;
  seen.backward_launches = cuda::launch_counts().launches - between;
  for (const Tensor& result : results) seen.tensors.push_back(to_cpu(result));
  for (const Tensor& input : inputs) seen.tensors.push_back(to_cpu(input.grad()));
  return seen;
}

std::optional<Guard> no_guard() { return std::nullopt; }

/// Not `bitwise`: up to rounding, relative to the largest element, since sums cancel.
void expect_near(const Tensors& given, const Tensors& expected, bool bitwise) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) {
    ASSERT_EQ(given[i].defined(), expected[i].defined()) << i;
    if (!given[i].defined()) continue;
    ASSERT_EQ(given[i].sizes(), expected[i].sizes()) << i;
    ASSERT_EQ(given[i].scalar_type(), expected[i].scalar_type()) << i;
    const Tensor exact = expected[i].to(at::kDouble), error = (given[i].to(at::kDouble) - exact).abs();
    EXPECT_LE(error.max().item<double>(), bitwise ? 0 : 8e-6 * exact.abs().max().item<double>()) << i;
  }
}

struct Program {
  std::string name;
  Function function;
  std::function<Tensors(uint64_t step)> inputs;  // new ones in each step
  bool is_recorded = false;                      // its backward has enough steps for a CUDA graph
};
std::ostream& operator<<(std::ostream& out, const Program& program) { return out << program.name; }

Tensors norm_between_products(const Tensors& in) {
  const Tensor normed = at::layer_norm((in[0].mm(in[1]) * in[0]).tanh(), {16}, in[2], in[3]);
  return {normed.mm(in[1]).sigmoid() * in[0]};
}

// Three of the results are saved for the backward; one is not differentiable.
Tensors several_results(const Tensors& in) {
  const Tensor waves = (in[0] * in[1]).sin(), powers = waves.exp();
  return {waves, powers, (waves * powers).sum(1), at::softmax(powers, 1), in[0] > in[1]};
}

Tensors with_dropout(const Tensors& in) { return {at::dropout((in[0] + in[1]).tanh().sin(), 0.3, true)}; }

Tensors leaves(uint64_t step, const std::vector<std::vector<int64_t>>& sizes) {
  Tensors leaves;
  for (const std::vector<int64_t>& each : sizes) leaves.push_back(leaf(100 * step + leaves.size(), fake(), each));
  return leaves;
}

const std::vector<Program>& programs() {
  static const auto* const programs = new std::vector<Program>{
      {"NormBetweenProducts", norm_between_products,
       [](uint64_t step) {
         return leaves(step, {{6, 16}, {16, 16}, {16}, {16}});
       },
       true},
      {"SeveralResults", several_results,
       [](uint64_t step) {
         return leaves(step, {{6, 16}, {6, 16}});
       }},
      {"WithDropout", with_dropout,
       [](uint64_t step) {
         return leaves(step, {{16, 64}, {64}});
       }},
  };
  return *programs;
}

class AotOnACard : public ::testing::Test {
 protected:
  void SetUp() override {
    install_fake_card();
    synchronize_fake_device();
    take_unordered();
    reset();
  }
  void TearDown() override {
    EXPECT_EQ(take_unordered(), kNothing);
    EXPECT_EQ(stats().compiler_failures + stats().refused_graphs, 0U) << stats();
    reset();
    EXPECT_EQ(take_graph_errors(), kNothing);
  }

 private:
  const CachedFakeMemory cached_;
};

// ---- compared with the eager function

/// The first call is traced, without a guard; the others run under `around`.
void expect_like_function(const Program& program, Around around, int side) {
  SCOPED_TRACE(std::string(name_of(around)) + ", stream " + std::to_string(side));
  reset();
  AotOptions options = with_kernels();
  options.fallback_random = true;  // the function's own numbers are expected
  const auto compiled = aot_function(program.function, options);
  const Function call = [&](const Tensors& inputs) { return compiled(inputs); };
  Seen last;
  for (uint64_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const Seen stock = run(program.function, program.inputs(step), side, no_guard);
    last = run(call, program.inputs(step), side, [&] { return step == 0 ? no_guard() : guard_of(around); });
    expect_near(last.tensors, stock.tensors, /*bitwise=*/step == 0);
  }
  EXPECT_EQ(compiled.stats().traces, 1U);
  EXPECT_EQ(compiled.stats().hits, kSteps - 1);
  EXPECT_EQ(compiled.stats().eager, 0U);
  EXPECT_GT(last.forward_launches, 0U);
  // If nodes have several streams, hindcast runs them without kernels.
  if (around == Around::StockEngine || side == 0) {
    EXPECT_GT(last.backward_launches, 0U);
  }
  const Stats counts = stats();
  EXPECT_EQ(counts.compiler_failures + counts.refused_graphs, 0U) << counts;
  if (around == Around::StockEngine) {
    EXPECT_EQ(compiled.stats().backwards, kSteps - 1);
    return;
  }
  EXPECT_EQ(counts.hits, kSteps - 2) << counts;
  EXPECT_EQ(counts.opaque_nodes.count("AotFunctionBackward"), 0U) << counts;
  if (around == Around::CudaGraphs && side == 0 && program.is_recorded) {
    EXPECT_GT(counts.cuda_graph_launches, 0U) << counts;
  }
}

class AotProgramsOnACard : public AotOnACard, public testing::WithParamInterface<Program> {};

TEST_P(AotProgramsOnACard, AreTheFunction) {
  for (const Around around : kAll) expect_like_function(GetParam(), around, 0);
}

TEST_P(AotProgramsOnACard, AreTheFunctionOnASideStream) {
  for (const Around around : kAll) expect_like_function(GetParam(), around, 1);
}

INSTANTIATE_TEST_SUITE_P(All, AotProgramsOnACard, testing::ValuesIn(programs()),
                         [](const testing::TestParamInfo<Program>& info) { return info.param.name; });

// ---- random numbers of kernels

/// The first result of the program's first op of this name; null: no such op.
const capture::Value* result_of(const Graph& program, std::string_view op) {
  for (const capture::Instr& instr : program.instrs) {
    if (instr.op && instr.op->operator_name().name == op) return &program.values[instr.outputs[0].index];
  }
  return nullptr;
}

/// Results and gradients use one mask, which shows in the result.
void expect_one_mask(const Tensors& inputs, const Tensors& seen) {
  const Tensor x = to_cpu(inputs[0]), b = to_cpu(inputs[1]), kept = (seen[0] != 0).to(at::kFloat);
  EXPECT_NEAR(kept.mean().item<double>(), 0.7, 0.1);
  const Tensor inner = (x + b).tanh(), noise = kept / 0.7;
  const Tensor slope = noise * inner.cos() * (1 - inner * inner) * to_cpu(constant(7, x.sizes()));
  expect_near(seen, {inner.sin() * noise, slope, slope.sum(0)}, /*bitwise=*/false);
}

TEST_F(AotOnACard, DropoutsDrawTheirMasksInKernels) {
  const Program& program = programs().back();
  for (const bool is_min_cut : {false, true}) {
    AotOptions options = with_kernels();
    options.partition = is_min_cut ? partition::min_cut : partition::standard;
    const auto compiled = aot_function(program.function, options);
    const Function call = [&](const Tensors& inputs) { return compiled(inputs); };
    for (const Around around : kAll) {
      for (uint64_t step = 0; step < kSteps; ++step) {
        SCOPED_TRACE(std::string(name_of(around)) + ", step " + std::to_string(step) + (is_min_cut ? ", min-cut" : ""));
        const bool is_traced = compiled.stats().calls == 0;
        const Tensors inputs = program.inputs(step);
        const Seen seen = run(call, inputs, 0, [&] { return is_traced ? no_guard() : guard_of(around); });
        expect_one_mask(inputs, seen.tensors);
        if (is_traced) continue;
        EXPECT_GT(seen.forward_launches, 0U);
        expect_near(run(call, inputs, 0, no_guard).tensors, seen.tensors, /*bitwise=*/false);  // with the same seed
      }
    }
    EXPECT_EQ(compiled.stats().traces, 1U);
    EXPECT_EQ(compiled.stats().eager, 0U);
    const AotPrograms made = compiled.core().programs().at(0);
    const capture::Value* const seed = result_of(*made.forward, "hindcast::philox_seed");
    ASSERT_NE(seed, nullptr);
    EXPECT_EQ(seed->device, fake());
    EXPECT_NE(result_of(*made.forward, "hindcast::philox_dropout"), nullptr);
    EXPECT_NE(result_of(*made.backward, "hindcast::philox_dropout"), nullptr);
  }
}

/// Calls of an op of ATen's without an overload name, while it lives.
class CallsOf {
 public:
  explicit CallsOf(const char* name)
      : name_(name), handle_(at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) {
                                                          const auto schema = call.operator_schema();
                                                          if (schema && schema->name() == counted->name_ && schema->overload_name().empty())
                                                            ++counted->count_;
                                                          return std::unique_ptr<at::ObserverContext>();
                                                        }).scopes({at::RecordScope::FUNCTION}))) {
    counted = this;
  }
  ~CallsOf() { at::removeCallback(handle_); }
  CallsOf(const CallsOf&) = delete;
  CallsOf& operator=(const CallsOf&) = delete;
  int count() const { return count_; }

 private:
  inline static CallsOf* counted = nullptr;
  const char* const name_;
  const at::CallbackHandle handle_;
  int count_ = 0;
};

// A mask counts its rows and columns by the same numbers in each call: a launch that fills them would be wasted.
TEST_F(AotOnACard, CountersOfMasksAreMadeOnceForAStream) {
  const Program& program = programs().back();
  const auto compiled = aot_function(program.function, with_kernels());
  const Function call = [&](const Tensors& inputs) { return compiled(inputs); };
  run(call, program.inputs(0), 0, no_guard);  // traced
  trim();
  for (const int side : {0, 1}) {
    for (uint64_t step = 1; step < 4; ++step) {
      SCOPED_TRACE("stream " + std::to_string(side) + ", step " + std::to_string(step));
      const Tensors inputs = program.inputs(step);
      const CallsOf aranges("aten::arange");
      expect_one_mask(inputs, run(call, inputs, side, no_guard).tensors);
      EXPECT_EQ(aranges.count(), step == 1 ? 1 : 0);
    }
  }
  EXPECT_GE(trim(), 2 * 4096 * sizeof(int32_t));
  const CallsOf aranges("aten::arange");
  run(call, program.inputs(4), 0, no_guard);
  EXPECT_EQ(aranges.count(), 1);
}

// The program's own graph would read them after they are freed.
TEST_F(AotOnACard, CountersOfMasksAreNotKeptWhileTheProgramCaptures) {
  const Program& program = programs().back();
  const auto compiled = aot_function(program.function, with_kernels());
  const Function call = [&](const Tensors& inputs) { return compiled(inputs); };
  for (uint64_t step = 0; step < 2; ++step) run(call, program.inputs(step), 0, no_guard);
  const ProgramRecords records;
  const CallsOf aranges("aten::arange");
  run(call, program.inputs(2), 0, no_guard);
  EXPECT_EQ(aranges.count(), 2);  // of rows and of columns, which the backward gets from the forward
}

// ---- what is traced

TEST_F(AotOnACard, SizesMayChange) {
  for (const Around around : kAll) {
    SCOPED_TRACE(name_of(around));
    const auto compiled = aot_function(Function(norm_between_products), with_kernels());
    const Function call = [&](const Tensors& inputs) { return compiled(inputs); };
    for (const int64_t rows : {3, 7, 11, 5, 9, 4, 10}) {
      SCOPED_TRACE(rows);
      const auto inputs = [&] {
        Tensors inputs = leaves(static_cast<uint64_t>(rows), {{rows, 16}, {16, 16}, {16}, {16}});
        inputs[0] = inputs[0].detach();  // sizes of parameters never become dynamic
        return inputs;
      };
      const uint64_t traces = compiled.stats().traces;
      const auto guard = [&] { return compiled.stats().traces == traces ? guard_of(around) : std::nullopt; };
      const Seen stock = run(norm_between_products, inputs(), 0, no_guard);
      expect_near(run(call, inputs(), 0, guard).tensors, stock.tensors, /*bitwise=*/false);
    }
    EXPECT_GE(compiled.stats().hits, 4U);
    EXPECT_EQ(compiled.stats().eager, 0U);
  }
}

/// Under `around` from the first call on.
void expect_traced_once(const Function& function, Around around) {
  SCOPED_TRACE(name_of(around));
  const auto compiled = aot_function(function, with_kernels());
  const Function call = [&](const Tensors& inputs) { return compiled(inputs); };
  for (uint64_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const Seen stock = run(function, leaves(step, {{6, 16}, {6, 16}}), 0, no_guard);
    const Seen ours = run(call, leaves(step, {{6, 16}, {6, 16}}), 0, [&] { return guard_of(around); });
    expect_near(ours.tensors, stock.tensors, /*bitwise=*/false);
  }
  EXPECT_EQ(compiled.stats().traces, 1U);
  EXPECT_EQ(compiled.stats().hits, kSteps - 1);
  EXPECT_EQ(compiled.stats().eager, 0U);
}

// The stock engine would run the traced backward in a device thread, which is not recorded.
TEST_F(AotOnACard, TheFirstBackwardMayBeUnderAGuard) {
  for (const Around around : kAll) expect_traced_once(several_results, around);
}

// ---- two devices

/// x on device 0 and w on device 1, to two results there.
Tensors on_two_devices(const Tensors& in) { return {in[0].sin() * in[0], (in[1] * in[1]).sin().exp()}; }

/// One step: forward on stream 1 of device 0 and stream 2 of device 1, the rest on the default streams and stream 3 of device 1. Unless
/// `reads_both`, only the result of device 1 has a gradient.
Tensors step_of_two_devices(const Function& call, const Tensors& leaves, bool reads_both,
                            const std::function<std::optional<Guard>()>& guard) {
  for (const Tensor& leaf : leaves) leaf.mutable_grad() = Tensor();
  order(stream(0, 0), stream(1, 0));
  order(stream(0, 1), stream(3, 1));
  Tensor in, loss;
  {
    const c10::StreamGuard third(stream(3, 1));
    in = leaves[1] * 2;
  }
  order(stream(3, 1), stream(2, 1));
  Tensors results;
  {
    const c10::StreamGuard first(stream(1, 0)), second(stream(2, 1));
    results = call({leaves[0], in});
  }
  order(stream(2, 1), stream(3, 1));
  {
    const c10::StreamGuard third(stream(3, 1));
    loss = (results[1] * results[1]).sum();
  }
  order(stream(3, 1), stream(0, 1));
  order(stream(1, 0), stream(0, 0));
  const Tensor of_second = loss;
  if (reads_both) loss = loss.to(fake(0)) + (results[0] * results[0]).sum();
  {
    const std::optional<Guard> around = guard();
    loss.backward();
  }
  Tensors seen;
  for (const Tensor& leaf : leaves) seen.push_back(leaf.grad().defined() ? to_cpu(leaf.grad()) : Tensor());
  synchronize_fake_device();  // before freeing what was created on one stream and read on another
  return seen;
}

/// A gradient moves from one device to the other within the function.
Tensors from_one_to_the_other(const Tensors& in) { return {in[0].sin() * in[0], (in[0].to(fake(1)) * in[1]).sin()}; }

/// Compared with the eager function.
AotStats expect_in_order(const Function& function, bool reads_both, Around around) {
  SCOPED_TRACE(std::string(name_of(around)) + (reads_both ? ", both results" : ", one result"));
  reset();
  const auto compiled = aot_function(function, with_kernels());
  const Function call = [&](const Tensors& inputs) { return compiled(inputs); };
  for (uint64_t step = 0; step < 5; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    synchronize_fake_device();
    const Tensors leaves = {leaf(step + 1, fake(0), {6, 16}), leaf(step + 100, fake(1), {6, 16})};
    synchronize_fake_device();
    const Tensors stock = step_of_two_devices(function, leaves, reads_both, no_guard);
    EXPECT_EQ(take_unordered(), kNothing) << "the function as it is";
    synchronize_fake_device();
    const Tensors ours = step_of_two_devices(call, leaves, reads_both, [&] { return step == 0 ? no_guard() : guard_of(around); });
    EXPECT_EQ(take_unordered(), kNothing);
    expect_near(ours, stock, /*bitwise=*/false);
  }
  return compiled.stats();
}

// A node has one stream, of one device. The function's work on the other device waits for its inputs, and is waited for.
TEST_F(AotOnACard, ABackwardOfTwoDevicesIsInOrder) {
  for (const Around around : kAll) {
    for (const bool reads_both : {true, false}) {
      const AotStats seen = expect_in_order(on_two_devices, reads_both, around);
      EXPECT_EQ(seen.traces, 1U);
      EXPECT_EQ(seen.eager, 0U);
      EXPECT_EQ(seen.hits, 4U);
    }
  }
}

// The function cannot be traced, and runs eagerly.
TEST_F(AotOnACard, AFunctionThatGoesToAnotherDeviceIsInOrder) {
  for (const Around around : kAll) EXPECT_EQ(expect_in_order(from_one_to_the_other, /*reads_both=*/true, around).eager, 4U);
}

// Then the node has no stream at all, and runs on those of backward()'s caller.
TEST_F(AotOnACard, ABackwardOfAResultOnTheHostIsInOrder) {
  const Function function = [](const Tensors& in) -> Tensors { return {(in[0].sin() * in[0]).exp().to(at::kCPU)}; };
  const auto step = [](const Function& call, const Tensor& x, const std::function<std::optional<Guard>()>& guard) {
    x.mutable_grad() = Tensor();
    const Tensor loss = on_side(1, call, {x})[0].square().sum();
    {
      const std::optional<Guard> around = guard();
      loss.backward();
    }
    return Tensors{to_cpu(x.grad())};
  };
  for (const Around around : kAll) {
    SCOPED_TRACE(name_of(around));
    reset();
    const auto compiled = aot_function(function, with_kernels());
    const Function call = [&](const Tensors& inputs) { return compiled(inputs); };
    for (uint64_t i = 0; i < 5; ++i) {
      SCOPED_TRACE(i);
      const Tensor x = leaf(i + 1, fake(), {6, 16});
      const Tensors stock = step(function, x, no_guard);
      EXPECT_EQ(take_unordered(), kNothing) << "the function as it is";
      expect_near(step(call, x, [&] { return i == 0 ? no_guard() : guard_of(around); }), stock, /*bitwise=*/false);
      EXPECT_EQ(take_unordered(), kNothing);
    }
    EXPECT_EQ(compiled.stats().traces, 1U);
    EXPECT_EQ(compiled.stats().eager, 0U);
  }
}

// In the same thread, in the middle of the forward.
TEST_F(AotOnACard, ABackwardInTheFunctionIsAPartOfIt) {
  const Function function = [](const Tensors& in) -> Tensors {
    const Tensor loss = (in[0] * in[1]).sin().sum();
    return {torch::autograd::grad({loss}, {in[0]}, {}, true, /*create_graph=*/true)[0] * in[1]};
  };
  for (const Around around : kAll) expect_traced_once(function, around);
}

}  // namespace
}  // namespace hindcast::tests::aot_test
