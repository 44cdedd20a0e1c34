#include "examples/digits/models.h"

#include <cmath>

namespace digits {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

constexpr std::int64_t kClasses = 10;

struct Mlp : Classifier {
  nn::Sequential layers = register_module(
      "layers", nn::Sequential(nn::Linear(64, 256), nn::ReLU(), nn::Linear(256, 128), nn::ReLU(), nn::Linear(128, kClasses)));

  Tensor forward(const Tensor& images) override { return layers->forward(images.flatten(1)); }
};

nn::Conv2d conv(std::int64_t from, std::int64_t to, std::int64_t size, std::int64_t stride) {
  // Batch norm follows every convolution and has the bias.
  return nn::Conv2d(nn::Conv2dOptions(from, to, size).stride(stride).padding(size / 2).bias(false));
}

/// relu(x + f(x)); a 1x1 convolution fits x to f(x) where the shape changes.
struct ResidualBlock : nn::Module {
  nn::Sequential body, shortcut;

  ResidualBlock(std::int64_t from, std::int64_t to, std::int64_t stride)
      : body(conv(from, to, 3, stride), nn::BatchNorm2d(to), nn::ReLU(), conv(to, to, 3, 1), nn::BatchNorm2d(to)) {
    register_module("body", body);
    if (from != to || stride != 1) {
      shortcut->push_back(conv(from, to, 1, stride));
      shortcut->push_back(nn::BatchNorm2d(to));
    }
    register_module("shortcut", shortcut);
  }

  Tensor forward(const Tensor& x) {
    const Tensor straight = shortcut->is_empty() ? x : shortcut->forward(x);
    return torch::relu(straight + body->forward(x));
  }
};

struct Cnn : Classifier {
  nn::Sequential stem = register_module("stem", nn::Sequential(conv(1, 16, 3, 1), nn::BatchNorm2d(16), nn::ReLU()));
  nn::Sequential blocks =
      register_module("blocks", nn::Sequential(ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 32, 1)));
  nn::Linear head = register_module("head", nn::Linear(32, kClasses));

  Tensor forward(const Tensor& images) override {
    const Tensor features = blocks->forward(stem->forward(images));
    return head->forward(torch::adaptive_avg_pool2d(features, {1, 1}).flatten(1));
  }
};

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kLayers = 2;
constexpr double kDropout = 0.1;
constexpr double kPositionScale = 0.3;  // about that of an embedded patch

/// Multi-head attention among the tokens of {n, tokens, width}, spelt out.
struct SelfAttention : nn::Module {
  nn::Linear project = register_module("project", nn::Linear(kWidth, 3 * kWidth));
  nn::Linear out = register_module("out", nn::Linear(kWidth, kWidth));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(kDropout));

  Tensor forward(const Tensor& x) {
    const std::int64_t n = x.size(0), tokens = x.size(1);
    // {query, key, value} x {n, heads, tokens, width of a head}
    const Tensor all = project->forward(x).reshape({n, tokens, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const Tensor scores = torch::matmul(all[0], all[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(kWidth / kHeads));
    const Tensor weights = dropout->forward(torch::softmax(scores, -1));
    const Tensor mixed = torch::matmul(weights, all[2]).transpose(1, 2);
    return out->forward(mixed.reshape({n, tokens, kWidth}));
  }
};

struct EncoderLayer : nn::Module {
  nn::LayerNorm before_attention = register_module("before_attention", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  std::shared_ptr<SelfAttention> attention = register_module("attention", std::make_shared<SelfAttention>());
  nn::LayerNorm before_mlp = register_module("before_mlp", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Sequential mlp = register_module("mlp", nn::Sequential(nn::Linear(kWidth, 2 * kWidth), nn::GELU(), nn::Linear(2 * kWidth, kWidth)));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(kDropout));

  Tensor forward(Tensor x) {
    x = x + dropout->forward(attention->forward(before_attention->forward(x)));
    return x + dropout->forward(mlp->forward(before_mlp->forward(x)));
  }
};

/// The image as 16 tokens, one for each patch of 2x2 pixels.
struct Transformer : Classifier {
  static constexpr std::int64_t kPatches = 16, kPatchPixels = 4;

  nn::Linear embed = register_module("embed", nn::Linear(kPatchPixels, kWidth));
  Tensor position = register_parameter("position", kPositionScale* torch::randn({kPatches, kWidth}));
  nn::Sequential layers = register_module("layers", nn::Sequential());
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear head = register_module("head", nn::Linear(kWidth, kClasses));

  Transformer() {
    for (std::int64_t i = 0; i < kLayers; ++i) layers->push_back(EncoderLayer());
  }

  Tensor forward(const Tensor& images) override {
    const Tensor patches = images.reshape({-1, 4, 2, 4, 2}).permute({0, 1, 3, 2, 4}).reshape({-1, kPatches, kPatchPixels});
    const Tensor tokens = layers->forward(embed->forward(patches) + position);
    return head->forward(norm->forward(tokens).mean(1));
  }
};

template <class Model>
Recipe recipe(const char* name, std::int64_t epochs, double learning_rate) {
  return {name, epochs, learning_rate, [] { return std::make_shared<Model>(); }};
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      recipe<Mlp>("mlp", 20, 2e-3),
      recipe<Cnn>("cnn", 10, 3e-3),
      recipe<Transformer>("transformer", 20, 2e-3),
  };
  return all;
}

}  // namespace digits
