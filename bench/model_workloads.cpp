// The models of the rows, as functions of their parameters: plain ATen calls, so that the file needs no torch::nn, and autograd records
// exactly these ops.

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

#include "bench/workload.h"

namespace hindcast::bench {
namespace {

using at::Tensor;

/// Creates the parameters and remembers them as the leaves of the workload.
struct Parameters {
  std::vector<Tensor> leaves;

  Tensor random(at::IntArrayRef sizes, int64_t fan_in) { return keep(at::randn(sizes) / std::sqrt(static_cast<double>(fan_in))); }
  Tensor constant(int64_t size, double value) { return keep(at::full({size}, value)); }

 private:
  Tensor keep(Tensor values) {
    leaves.push_back(values.set_requires_grad(true));
    return leaves.back();
  }
};

struct Linear {
  Tensor weight, bias;
  Linear(Parameters& parameters, int64_t in, int64_t out) : weight(parameters.random({out, in}, in)), bias(parameters.constant(out, 0)) {}
  Tensor operator()(const Tensor& x) const { return at::linear(x, weight, bias); }
};

struct LayerNorm {
  Tensor weight, bias;
  LayerNorm(Parameters& parameters, int64_t width) : weight(parameters.constant(width, 1)), bias(parameters.constant(width, 0)) {}
  Tensor operator()(const Tensor& x) const { return at::layer_norm(x, weight.sizes(), weight, bias); }
};

/// A convolution and its batch norm in training mode.
struct ConvNorm {
  Tensor kernel, weight, bias, mean, var;
  int64_t stride;
  ConvNorm(Parameters& parameters, int64_t in, int64_t out, int64_t stride, int64_t side = 3)
      : kernel(parameters.random({out, in, side, side}, in * side * side)),
        weight(parameters.constant(out, 1)),
        bias(parameters.constant(out, 0)),
        mean(at::zeros({out})),
        var(at::ones({out})),
        stride(stride) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor y = at::conv2d(x, kernel, {}, stride, /*padding=*/kernel.size(2) / 2);
    return at::batch_norm(y, weight, bias, mean, var, /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false);
  }
};

struct ResidualBlock {
  ConvNorm first, second;
  std::vector<ConvNorm> shortcut;  // one if the shape changes, none if x itself fits
  ResidualBlock(Parameters& parameters, int64_t in, int64_t out, int64_t stride, int64_t shortcut_side = 3)
      : first(parameters, in, out, stride), second(parameters, out, out, 1) {
    if (in != out || stride != 1) shortcut.emplace_back(parameters, in, out, stride, shortcut_side);
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor y = second(at::relu(first(x)));
    return at::relu(y + (shortcut.empty() ? x : shortcut.front()(x)));
  }
};

constexpr int64_t kWidth = 128, kHeads = 4, kTokens = 64, kGptBatch = 8, kVocabulary = 96;
constexpr double kDropout = 0.1;

struct TransformerLayer {
  LayerNorm norm1, norm2;
  Linear qkv, project, widen, narrow;
  explicit TransformerLayer(Parameters& parameters)
      : norm1(parameters, kWidth),
        norm2(parameters, kWidth),
        qkv(parameters, kWidth, 3 * kWidth),
        project(parameters, kWidth, kWidth),
        widen(parameters, kWidth, 4 * kWidth),
        narrow(parameters, 4 * kWidth, kWidth) {}

  Tensor operator()(const Tensor& input, const Tensor& mask, Attention kind) const {
    const Tensor x = input + at::dropout(project(attend(norm1(input), mask, kind)), kDropout, /*train=*/true);
    return x + at::dropout(narrow(at::gelu(widen(norm2(x)))), kDropout, /*train=*/true);
  }

 private:
  Tensor attend(const Tensor& x, const Tensor& mask, Attention kind) const {
    const std::vector<Tensor> parts = qkv(x).chunk(3, /*dim=*/-1);
    const auto heads = [](const Tensor& t) { return t.view({kGptBatch, kTokens, kHeads, kWidth / kHeads}).transpose(1, 2); };
    const Tensor q = heads(parts[0]), k = heads(parts[1]), v = heads(parts[2]);
    Tensor y;
    if (kind == Attention::Fused) {
      y = at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
    } else {
      const double scale = 1 / std::sqrt(static_cast<double>(kWidth / kHeads));
      y = at::matmul(at::softmax(at::matmul(q, k.transpose(-2, -1)) * scale + mask, -1), v);
    }
    return y.transpose(1, 2).reshape({kGptBatch, kTokens, kWidth});
  }
};

}  // namespace

Workload mlp(std::vector<int64_t> widths, int64_t batch) {
  Parameters parameters;
  std::vector<Linear> layers;
  for (size_t i = 0; i + 1 < widths.size(); ++i) layers.emplace_back(parameters, widths[i], widths[i + 1]);
  const Tensor input = at::randn({batch, widths.front()});
  const Tensor target = at::randint(widths.back(), {batch}, at::kLong);
  Workload work{parameters.leaves, [layers, input, target] {
                  Tensor x = input;
                  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](i == 0 ? x : at::relu(x));
                  return at::cross_entropy_loss(x, target);
                }};
  work.data = {input, target};
  return work;
}

Workload ppo(int64_t observations, int64_t width, int64_t actions, int64_t batch) {
  constexpr double kClip = 0.2, kOfEntropy = 0.01;
  Parameters parameters;
  const Linear first(parameters, observations, width), second(parameters, width, width), head(parameters, width, actions);
  const Tensor seen = at::randn({batch, observations}), action = at::randint(actions, {batch}, at::kLong), advantage = at::randn({batch});
  const auto log_prob_of = [action](const Tensor& log_probs) { return log_probs.gather(1, action.unsqueeze(1)).squeeze(1); };
  const Tensor old_log_prob = log_prob_of(at::log_softmax(at::randn({batch, actions}), 1));
  Workload work{parameters.leaves, [=] {
                  const Tensor log_probs = at::log_softmax(head(second(first(seen).tanh()).tanh()), 1);
                  const Tensor ratio = (log_prob_of(log_probs) - old_log_prob).exp();
                  const Tensor surrogate = at::min(ratio * advantage, ratio.clamp(1 - kClip, 1 + kClip) * advantage);
                  const Tensor entropy = -(log_probs.exp() * log_probs).sum(1);
                  return -(surrogate + kOfEntropy * entropy).mean();
                }};
  work.data = {seen, action, old_log_prob, advantage};
  return work;
}

Workload resnet(int64_t image, int64_t image_channels, int64_t width, int64_t batch) {
  Parameters parameters;
  const ConvNorm stem(parameters, image_channels, width, 1);
  const std::vector<ResidualBlock> blocks = {{parameters, width, width, 1}, {parameters, width, 2 * width, 2}};
  const Linear head(parameters, 2 * width, 10);
  const Tensor input = at::randn({batch, image_channels, image, image});
  const Tensor target = at::randint(10, {batch}, at::kLong);
  return {parameters.leaves, [stem, blocks, head, input, target] {
            Tensor x = at::relu(stem(input));
            for (const ResidualBlock& block : blocks) x = block(x);
            return at::cross_entropy_loss(head(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1)), target);
          }};
}

Workload resnet18(int64_t image, int64_t batch) {
  constexpr int64_t kClasses = 1000;
  Parameters parameters;
  const ConvNorm stem(parameters, 3, 64, /*stride=*/2, /*side=*/7);
  std::vector<ResidualBlock> blocks;
  for (int64_t in = 64, out = 64; out <= 512; in = out, out *= 2) {
    blocks.emplace_back(parameters, in, out, in == out ? 1 : 2, /*shortcut_side=*/1);
    blocks.emplace_back(parameters, out, out, 1);
  }
  const Linear head(parameters, 512, kClasses);
  const Tensor input = at::randn({batch, 3, image, image});
  const Tensor target = at::randint(kClasses, {batch}, at::kLong);
  return {parameters.leaves, [stem, blocks, head, input, target] {
            Tensor x = at::max_pool2d(at::relu(stem(input)), /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
            for (const ResidualBlock& block : blocks) x = block(x);
            return at::cross_entropy_loss(head(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1)), target);
          }};
}

Workload norm_silu(at::IntArrayRef sizes, int64_t groups) {
  Parameters parameters;
  const Tensor x = parameters.random(sizes, 1), residual = parameters.random(sizes, 1);
  const Tensor weight = parameters.constant(sizes[1], 1), bias = parameters.constant(sizes[1], 0);
  Workload work{parameters.leaves, [=] { return at::silu(at::group_norm(x + residual, groups, weight, bias)); }};
  work.incoming = at::randn(sizes);
  return work;
}

Workload lstm(int64_t width, Outputs outputs) {
  constexpr int64_t kSteps = 20, kBatch = 32;
  Parameters parameters;
  const Linear of_input(parameters, width, 4 * width), of_state(parameters, width, 4 * width);
  const Tensor input = at::randn({kBatch, kSteps, width}), target = at::randn({kBatch, kSteps, width});
  Workload work{parameters.leaves, [=] {
                  Tensor state = at::zeros({kBatch, width}), memory = at::zeros({kBatch, width});
                  Tensor written = outputs == Outputs::Written ? at::zeros_like(target) : Tensor();
                  std::vector<Tensor> kept;
                  for (int64_t step = 0; step < kSteps; ++step) {
                    const std::vector<Tensor> gates = (of_input(input.select(1, step)) + of_state(state)).chunk(4, 1);
                    memory = gates[0].sigmoid() * memory + gates[1].sigmoid() * gates[2].tanh();
                    state = gates[3].sigmoid() * memory.tanh();
                    if (written.defined()) {
                      written.select(1, step).copy_(state);
                    } else {
                      kept.push_back(state);
                    }
                  }
                  return at::mse_loss(written.defined() ? written : at::stack(kept, 1), target);
                }};
  work.data = {input, target};
  return work;
}

Workload gpt(Attention attention) {
  Parameters parameters;
  const Tensor token_table = parameters.random({kVocabulary, kWidth}, kWidth);
  const Tensor position_table = parameters.random({kTokens, kWidth}, kWidth);
  const std::vector<TransformerLayer> layers = {TransformerLayer(parameters), TransformerLayer(parameters)};
  const LayerNorm norm(parameters, kWidth);
  const Linear head(parameters, kWidth, kVocabulary);
  const Tensor mask = at::full({kTokens, kTokens}, -std::numeric_limits<float>::infinity()).triu(1);
  const Tensor tokens = at::randint(kVocabulary, {kGptBatch, kTokens}, at::kLong);
  const Tensor targets = at::randint(kVocabulary, {kGptBatch * kTokens}, at::kLong);
  return {parameters.leaves, [=] {
            Tensor x = at::embedding(token_table, tokens) + position_table;
            x = at::dropout(x, kDropout, /*train=*/true);
            for (const TransformerLayer& layer : layers) x = layer(x, mask, attention);
            return at::cross_entropy_loss(head(norm(x)).flatten(0, 1), targets);
          }};
}

}  // namespace hindcast::bench
