#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace hindcast::bench {

/// What a row measures: how to build a new autograd graph, and the leaves that get gradients.
struct Workload {
  std::vector<at::Tensor> leaves;
  std::function<at::Tensor()> forward;        // each call builds a new graph and returns its root, a scalar where nothing is incoming
  bool zero_in_place = false;                 // `.grad.zero_()` before a backward; else the gradients are dropped
  at::Tensor incoming = {};                   // the root's gradient, as from a layer above
  std::function<void()> after_backward = {};  // timed with the backward: what a training step does with the gradients
  double floor_bytes = 0;                     // what a perfect backward reads and writes; 0: the row prints no floor
  std::vector<at::Tensor> data = {};          // what the forward reads besides the leaves; for models with a hand-written step

  /// What an optimizer's zero_grad does. Never part of the measured time.
  void clear_grads() const;
};

using Build = std::function<Workload()>;

/// Autograd nodes that a backward from `root` visits.
size_t count_nodes(const at::Tensor& root);

// Tiny ops, so that the engine's own cost dominates. Tensors have 16 floats.
Workload mixed_chain(int ops);            // mul, add, sin, tanh in turn
Workload mul_chain(int ops);              // mul by a constant tensor
Workload hooked(Workload work);           // the same with one no-op hook on the first leaf
Workload zeroed_in_place(Workload work);  // the same with zero_grad(set_to_none = false)

// Many leaves of 8 floats: each behind a mul of its own, or all under one cat.
Workload mul_leaves(int count);
Workload cat_leaves(int count);
Workload residual(int64_t rows, int64_t columns);  // tanh(x) + y: y gets the incoming gradient unchanged

Workload sin_chain(int ops, int64_t floats);  // large tensors: time and memory are the kernels'

// Models, written as functions of their parameters, with a loss; sizes in the name of the row.
Workload mlp(std::vector<int64_t> widths, int64_t batch);
/// A policy of two layers with tanh and a head: the clipped surrogate of PPO, and the entropy of its actions.
Workload ppo(int64_t observations, int64_t width, int64_t actions, int64_t batch);
Workload resnet(int64_t image, int64_t image_channels, int64_t width, int64_t batch);
Workload resnet18(int64_t image, int64_t batch);  // the network of that name, 1000 classes, with its loss
/// The part of a U-Net between its convolutions, without a loss: silu(group_norm(x + residual)).
Workload norm_silu(at::IntArrayRef sizes, int64_t groups);
enum class Attention { Explicit, Fused };  // softmax(q k^T) v in single ops, or LibTorch's one op
enum class Outputs : uint8_t { Kept, Written };
/// A cell of single operators over 20 steps, batch 32; its outputs kept in a list, or written to the steps of one tensor.
Workload lstm(int64_t width, Outputs outputs);
Workload gpt(Attention attention);  // 2 layers, d = 128, 4 heads, 64 tokens, batch 8

}  // namespace hindcast::bench
