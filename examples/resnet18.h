#pragma once
// ResNet-18, as torchvision has it.

#include <torch/torch.h>

struct BasicBlockImpl : torch::nn::Module {
  BasicBlockImpl(int64_t in, int64_t out, int64_t stride)
      : conv1(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)),
        bn1(out),
        conv2(torch::nn::Conv2dOptions(out, out, 3).padding(1).bias(false)),
        bn2(out) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    if (stride == 1 && in == out) return;
    downsample->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)));
    downsample->push_back(torch::nn::BatchNorm2d(out));
    register_module("downsample", downsample);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = bn2(conv2(bn1(conv1(x)).relu_()));
    return (y + (downsample->is_empty() ? x : downsample->forward(x))).relu_();
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
  torch::nn::Sequential downsample;
};
TORCH_MODULE(BasicBlock);

struct ResNet18Impl : torch::nn::Module {
  explicit ResNet18Impl(int64_t classes = 1000)
      : conv1(torch::nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)), bn1(64), fc(512, classes) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    for (int64_t in = 64, out = 64; out <= 512; in = out, out *= 2) {
      layers->push_back(BasicBlock(in, out, in == out ? 1 : 2));
      layers->push_back(BasicBlock(out, out, 1));
    }
    register_module("layers", layers);
    register_module("fc", fc);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(bn1(conv1(x)).relu_(), 3, 2, 1);
    x = layers->forward(x);
    return fc(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Sequential layers;
  torch::nn::Linear fc;
};
TORCH_MODULE(ResNet18);
