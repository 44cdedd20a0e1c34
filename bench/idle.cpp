// Programs that gain nothing must pay nothing: steps of a few tiny operators, compiled and eager, in the steady state. Processor time is
// measured, and a block's value is the mean of its steps: occasional steps that are tried again are part of the price.
// bench/idle.py has the rows of Python.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>

#include "bench/harness.h"
#include "bench/suites.h"
#include "hindcast/aot_function.h"
#include "hindcast/compiled_step.h"

namespace hindcast::bench {
namespace {

using Step = std::function<void()>;

struct Idle {
  Step stock, ours;
  bool under_guard = false;
};

double processor_us() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double run_block(const Idle& idle, bool ours, int64_t steps) {
  std::optional<Guard> guard;
  if (ours && idle.under_guard) guard.emplace(enable(compilers::fused()));
  const Step& step = ours ? idle.ours : idle.stock;
  const double start = processor_us();
  for (int64_t i = 0; i < steps; ++i) step();
  return (processor_us() - start) / static_cast<double>(steps);
}

void measure(benchmark::State& state, const Settings& settings, const std::function<Idle()>& build) {
  reset();
  at::manual_seed(1);
  const Idle idle = build();
  const int64_t warm_up = settings.quick ? 50 : 500;
  for (int i = 0; i < 3; ++i) {
    run_block(idle, /*ours=*/false, warm_up);
    run_block(idle, /*ours=*/true, warm_up);
    wait();
  }
  // An even number: a block has as many of each of two alternating kinds.
  const int64_t steps = std::max<int64_t>(1, static_cast<int64_t>(2 * settings.block_us / run_block(idle, false, 20)) / 2) * 2;
  std::vector<double> stock, ours;
  bool stock_first = false;
  for (auto _ : state) {
    stock_first = !stock_first;
    if (stock_first) stock.push_back(run_block(idle, false, steps));
    ours.push_back(run_block(idle, true, steps));
    if (!stock_first) stock.push_back(run_block(idle, false, steps));
    state.SetIterationTime(ours.back() * 1e-6);
  }
  const Summary ratio = paired_quotients(stock, ours), of_stock = summarize(stock), of_ours = summarize(ours);
  auto& counters = state.counters;
  counters["stock_us"] = of_stock.median;
  counters["stock_min_us"] = of_stock.min;
  counters["hindcast_us"] = of_ours.median;
  counters["hindcast_min_us"] = of_ours.min;
  counters["ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
}

// ---- functions

template <class Function, class Arguments>
Idle calls(const Function& function, const Arguments& arguments, bool grad_mode = true) {
  const auto compiled = aot_function(function);
  const auto step = [=](const auto& callable) {
    return [=] {
      const at::AutoGradMode mode(grad_mode);
      std::apply(callable, arguments());
    };
  };
  return {step(function), step(compiled)};
}

template <class Function>
Idle same_calls(const Function& function, const at::Tensor& x, bool grad_mode = true) {
  return calls(
      function, [x] { return std::tuple(x); }, grad_mode);
}

template <class Function>
Idle steps_of(const Function& function, const at::Tensor& x) {
  const auto compiled = aot_function(function);
  const auto step = [=](const auto& callable) {
    return [=] {
      callable(x).sum().backward();
      x.mutable_grad() = at::Tensor();
    };
  };
  return {step(function), step(compiled)};
}

at::Tensor positive(at::Tensor x) { return x.index({x > 0}); }
at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

Idle alternating() {
  const auto two = [](at::Tensor x) { return std::tuple((x.sin() * 2).exp(), (x.cos() * 3).exp()); };
  const auto compiled = aot_function(two);
  const at::Tensor x = leaf({16});
  const auto step = [=](const auto& callable) {
    return [=, first = false]() mutable {
      const auto [a, b] = callable(x);
      first = !first;
      (first ? a : b).sum().backward();
      x.mutable_grad() = at::Tensor();
    };
  };
  return {step(two), step(compiled)};
}

Idle other_numbers() {
  const at::Tensor x = leaf({16});
  const auto number = std::make_shared<double>(0);
  return calls([](at::Tensor x, double by) { return (x * by).sin().sum(); }, [=] { return std::tuple(x, *number += 1); });
}

Idle other_items() {
  const auto number = std::make_shared<double>(0);
  return calls([](at::Tensor x) { return x.sin() * x.sum().item(); }, [=] { return std::tuple(at::full({16}, *number += 1)); });
}

// ---- backwards

Idle guarded(const Step& step) { return {step, step, true}; }

Idle matmul(bool with_hook) {
  const at::Tensor w = leaf({16, 16}), x = at::randn({4, 16});
  if (with_hook) w.register_hook([](const at::Tensor& gradient) { return gradient; });
  return guarded([=] {
    x.mm(w).sum().backward();
    w.mutable_grad() = at::Tensor();
  });
}

struct Scale : torch::autograd::Function<Scale> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    context->get_saved_variables();
    return {gradients[0] * 2};
  }
};

Idle functions() {
  const at::Tensor x = leaf({16});
  return guarded([=] {
    at::Tensor y = x;
    for (int i = 0; i < 10; ++i) y = Scale::apply(y);
    y.sum().backward();
    x.mutable_grad() = at::Tensor();
  });
}

Idle one_tiny_sgd() {
  const auto lane = [](bool compiled) -> Step {
    const at::Tensor parameter = leaf({8, 4});
    parameter.mutable_grad() = at::ones({8, 4});
    const auto optimizer = std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{parameter}, torch::optim::SGDOptions(1e-3));
    if (!compiled) return [=] { optimizer->step(); };
    const auto step = std::make_shared<CompiledStep>(compiled_step(*optimizer));
    return [=] { (*step)(), void(optimizer); };
  };
  return {lane(false), lane(true)};
}

}  // namespace

void register_idle(const Settings& settings) {
  const auto row = [&](const std::string& name, const std::function<Idle()>& build) {
    register_row(settings, "idle/" + name, settings.pairs(kPairs),
                 [settings, build](benchmark::State& state) { measure(state, settings, build); });
  };
  const auto add = [](at::Tensor x) { return x + 1; };
  row("function/add", [=] { return same_calls(add, at::ones({16})); });
  row("function/add/no_grad", [=] { return same_calls(add, at::ones({16}), false); });
  row("function/relu/64x64", [] { return same_calls([](at::Tensor x) { return x.relu(); }, at::randn({64, 64})); });
  row("function/three_ops", [] { return same_calls([](at::Tensor x) { return (x + 1).sin() * 2; }, at::ones({16})); });
  row("function/add/training", [=] { return steps_of(add, leaf({16})); });
  row("function/alternating_results", alternating);
  row("number/argument", other_numbers);
  row("number/item", other_items);
  row("eager/mask", [] { return same_calls(positive, at::randn({16})); });
  row("eager/mask/no_grad", [] { return same_calls(positive, at::randn({16}), false); });
  row("eager/mask/training", [] { return steps_of(positive, leaf({16})); });
  row("guard/matmul", [] { return matmul(false); });
  row("guard/matmul_and_hook", [] { return matmul(true); });
  row("guard/10_functions", functions);
  row("optimizer/sgd/one_tiny", one_tiny_sgd);
}

}  // namespace hindcast::bench
