#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace digits {

/// From images {n, 1, 8, 8} to one score for each of the ten digits, {n, 10}.
struct Classifier : torch::nn::Module {
  virtual torch::Tensor forward(const torch::Tensor& images) = 0;
};

/// A model that the demo can train, and how.
struct Recipe {
  std::string name;
  std::int64_t epochs;  ///< enough for more than 95% on the held-out images
  double learning_rate;
  std::function<std::shared_ptr<Classifier>()> make;  ///< weights from LibTorch's generator
};

/// All of them: "mlp", "cnn" and "transformer".
const std::vector<Recipe>& recipes();

}  // namespace digits
