#include "bench/gpu/train_steps.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bench/gpu/moment.h"
#include "bench/summary.h"
#include "hindcast/hindcast.h"
#include "hindcast/train_step.h"

namespace hindcast::bench::gpu {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Loss = std::function<Tensor(const Tensor& x, const Tensor& y)>;

constexpr double kRate = 1e-4, kMaxNorm = 1.0;
constexpr int kStepsOfBlock = 20, kWarmSteps = 30, kBatches = 4;

struct Model {
  Tensors parameters;
  Loss loss;
  std::vector<std::pair<Tensor, Tensor>> batches;
};

/// Layers of a policy, `widths` from the input to the output.
Model perceptron(const std::vector<int64_t>& widths, int64_t rows, bool is_tanh, c10::Device device) {
  Model model;
  const auto numbers = [&](at::IntArrayRef sizes) { return at::randn(sizes, device); };
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    model.parameters.push_back((numbers({widths[i], widths[i + 1]}) / std::sqrt(static_cast<double>(widths[i]))).requires_grad_());
    model.parameters.push_back(at::zeros({widths[i + 1]}, device).requires_grad_());
  }
  for (int i = 0; i < kBatches; ++i) model.batches.emplace_back(numbers({rows, widths.front()}), numbers({rows, widths.back()}));
  model.loss = [parameters = model.parameters, is_tanh](const Tensor& x, const Tensor& y) {
    Tensor h = x;
    for (size_t i = 0; i < parameters.size(); i += 2) {
      h = at::addmm(parameters[i + 1], h, parameters[i]);
      if (i + 2 < parameters.size()) h = is_tanh ? at::tanh(h) : at::gelu(h);
    }
    return (h - y).square().mean();
  };
  return model;
}

Tensor slope_of(const Tensor& value, const Tensor& of) {
  return torch::autograd::grad({value.sum()}, {of}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

/// A physics-informed net: its Laplacian has a target.
Model pinn(int64_t points, c10::Device device) {
  Model model = perceptron({2, 64, 64, 64, 1}, points, /*is_tanh=*/true, device);
  model.loss = [parameters = model.parameters](const Tensor& points, const Tensor& wanted) {
    const Tensor x = points.detach().requires_grad_();
    Tensor value = x;
    for (size_t i = 0; i < parameters.size(); i += 2) value = at::addmm(parameters[i + 1], i == 0 ? value : at::tanh(value), parameters[i]);
    const Tensor slope = slope_of(value, x);
    const Tensor laplacian = slope_of(slope.select(1, 0), x).select(1, 0) + slope_of(slope.select(1, 1), x).select(1, 1);
    return at::mse_loss(laplacian, wanted.select(1, 0));
  };
  return model;
}

/// A critic of WGAN-GP: `x` are real samples, `y` generated ones.
Model gradient_penalty(int64_t rows, c10::Device device) {
  Model model = perceptron({64, 128, 128, 1}, rows, /*is_tanh=*/false, device);
  for (auto& [real, made] : model.batches) made = at::randn_like(real);
  model.loss = [parameters = model.parameters](const Tensor& real, const Tensor& made) {
    const auto critic = [&](Tensor x) {
      for (size_t i = 0; i < parameters.size(); i += 2) x = at::addmm(parameters[i + 1], i == 0 ? x : at::silu(x), parameters[i]);
      return x;
    };
    const Tensor between = (0.3 * real + 0.7 * made).detach().requires_grad_();
    return (critic(made) - critic(real)).mean() + 10 * (slope_of(critic(between), between).norm(2, 1) - 1).square().mean();
  };
  return model;
}

/// A layer of a transformer, without attention's own kernels.
Model block(int64_t rows, int64_t width, c10::Device device) {
  Model model;
  const auto numbers = [&](at::IntArrayRef sizes) { return at::randn(sizes, device); };
  model.parameters = {at::ones({width}, device).requires_grad_(), at::zeros({width}, device).requires_grad_()};
  for (const int64_t columns : {width, width, width, width, 4 * width}) {
    model.parameters.push_back((numbers({width, columns}) / 16).requires_grad_());
  }
  model.parameters.push_back((numbers({4 * width, width}) / 32).requires_grad_());
  for (int i = 0; i < kBatches; ++i) model.batches.emplace_back(numbers({rows, width}), numbers({rows, width}));
  model.loss = [p = model.parameters](const Tensor& x, const Tensor& y) {
    const Tensor h = at::layer_norm(x, {x.size(-1)}, p[0], p[1]);
    const Tensor scores = at::softmax(at::mm(at::mm(h, p[2]), at::mm(h, p[3]).t()) * 0.125, -1);
    const Tensor mixed = x + at::mm(at::mm(scores, at::mm(h, p[4])), p[5]);
    return (mixed + at::mm(at::gelu(at::mm(mixed, p[6])), p[7]) - y).square().mean();
  };
  return model;
}

Model build(const std::string& row, c10::Device device) {
  at::manual_seed(1);
  if (row == "train/ppo/8-64-64-2/b64") return perceptron({8, 64, 64, 2}, 64, /*is_tanh=*/true, device);
  if (row == "train/mlp/6x64/b64") return perceptron({64, 64, 64, 64, 64, 64, 64}, 64, /*is_tanh=*/false, device);
  if (row == "train/block/64x64") return block(64, 64, device);
  if (row == "train/pinn/2-64-64-64-1/b1024") return pinn(1024, device);
  if (row == "train/gradient_penalty/64-128-128-1/b64") return gradient_penalty(64, device);
  throw std::invalid_argument("there is no row " + row);
}

struct Lane {
  Model model;
  std::unique_ptr<torch::optim::Adam> optimizer;
  std::function<Tensor(const Tensor& x, const Tensor& y)> step;
  std::vector<double> us = {}, host_us = {};

  explicit Lane(const std::string& row, c10::Device device)
      : model(build(row, device)), optimizer(std::make_unique<torch::optim::Adam>(model.parameters, torch::optim::AdamOptions(kRate))) {}

  void run(int steps, c10::Device device) {
    wait_for(device);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < steps; ++i) {
      const auto& [x, y] = model.batches[static_cast<size_t>(i) % model.batches.size()];
      step(x, y);
    }
    host_us.push_back(microseconds_since(start) / steps);
    wait_for(device);
    us.push_back(microseconds_since(start) / steps);
  }
};

}  // namespace

std::vector<std::string> train_rows() {
  return {"train/ppo/8-64-64-2/b64", "train/mlp/6x64/b64", "train/block/64x64", "train/pinn/2-64-64-64-1/b1024",
          "train/gradient_penalty/64-128-128-1/b64"};
}

void measure_train_steps(benchmark::State& state, const std::string& row, c10::Device device, int rounds) {
  reset();
  Lane stock(row, device), kernels(row, device), graphs(row, device);
  stock.step = [&](const Tensor& x, const Tensor& y) {
    stock.optimizer->zero_grad();
    const Tensor loss = stock.model.loss(x, y);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(stock.model.parameters, kMaxNorm);
    stock.optimizer->step();
    return loss.detach();
  };
  TrainStepOptions options;
  options.clip = ClipGradNorm{kMaxNorm};
  options.aot.async = false;
  auto by_kernels = train_step(*kernels.optimizer, kernels.model.loss, options);
  kernels.step = [&](const Tensor& x, const Tensor& y) { return by_kernels(x, y); };
  options.cuda_graphs = true;
  auto as_graph = train_step(*graphs.optimizer, graphs.model.loss, options);
  graphs.step = [&](const Tensor& x, const Tensor& y) { return as_graph(x, y); };
  for (Lane* const lane : {&stock, &kernels, &graphs}) lane->run(kWarmSteps, device);
  for (size_t i = 0; i < stock.model.parameters.size(); ++i) {
    for (const Lane* const lane : {&kernels, &graphs}) {
      if (at::allclose(lane->model.parameters[i].detach(), stock.model.parameters[i].detach(), 1e-3, 1e-5)) continue;
      state.SkipWithError("the parameters are others than after stock's steps: nothing was timed; run the tests");
      return;
    }
  }
  for (Lane* const lane : {&stock, &kernels, &graphs}) {
    lane->us.clear();
    lane->host_us.clear();
  }
  const uint64_t before = as_graph.stats().cuda_graph_launches;
  for (auto _ : state) {
    for (int round = 0; round < rounds; ++round) {
      for (Lane* const lane : {&stock, &kernels, &graphs}) lane->run(kStepsOfBlock, device);
    }
    state.SetIterationTime(1e-6 * summarize(graphs.us).median);
  }
  auto& counters = state.counters;
  const auto add = [&](const std::string& name, const Lane& lane) {
    counters[name + "_us"] = summarize(lane.us).median;
    counters[name + "_iqr_us"] = summarize(lane.us).iqr();
    counters[name + "_host_us"] = summarize(lane.host_us).median;
  };
  add("stock", stock);
  add("hindcast", kernels);
  add("graphs", graphs);
  counters["ratio"] = summarize(stock.us).median / summarize(kernels.us).median;
  counters["graphs_ratio"] = summarize(stock.us).median / summarize(graphs.us).median;
  counters["graph_bytes"] = static_cast<double>(as_graph.stats().cuda_graph_bytes);
  if (const std::string why = as_graph.stats().why_no_cuda_graph; !why.empty()) state.SetLabel("no CUDA graph: " + why);
  counters["graph_share"] = static_cast<double>(as_graph.stats().cuda_graph_launches - before) / (kStepsOfBlock * rounds);
}

}  // namespace hindcast::bench::gpu
