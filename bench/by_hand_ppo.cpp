// The step of ppo/8-64-64-2/b64: a policy of three layers with tanh, the clipped surrogate and the entropy of two actions.

#include <cmath>
#include <cstring>

#include "bench/by_hand.h"
#include "bench/by_hand_math.h"

namespace hindcast::bench {
namespace {

constexpr int kBatch = 64, kIn = 8, kWidth = 64;

struct alignas(64) Parameters {
  float weight1[kWidth * kIn], bias1[kWidth], weight2[kWidth * kWidth], bias2[kWidth], weight3[2 * kWidth], bias3[2];
};
constexpr int kParameters =
    kWidth * kIn + kWidth + kWidth * kWidth + kWidth + 2 * kWidth + 2;  // they lie together, without what fills a line
Parameters parameters, gradients, means, squares;
alignas(64) float seen[kBatch * kIn], action[kBatch], old_log_prob[kBatch], advantage[kBatch];
alignas(64) float turned1[kIn * kWidth], turned2[kWidth * kWidth], hidden1[kBatch * kWidth], hidden2[kBatch * kWidth];
alignas(64) float d_hidden1[kBatch * kWidth], d_hidden2[kBatch * kWidth], d_turned1[kIn * kWidth];
alignas(64) float logits[2][kBatch], d_logits[2][kBatch];
double steps = 0;

HINDCAST_INLINE void head() {
  const Parameters& p = parameters;
  for (int b = 0; b < kBatch; ++b) {
    Floats first = {}, second = {};
    for (int k = 0; k < kWidth; k += kLanes) {
      const Floats h = load(hidden2 + b * kWidth + k);
      first += h * load(p.weight3 + k);
      second += h * load(p.weight3 + kWidth + k);
    }
    logits[0][b] = sum_of(first) + p.bias3[0];
    logits[1][b] = sum_of(second) + p.bias3[1];
  }
}

/// The loss, and its gradient with respect to the logits.
HINDCAST_INLINE float surrogate() {
  constexpr float kOfEntropy = 0.01F, kClip = 0.2F;
  float loss = 0;
  for (int b = 0; b < kBatch; ++b) {
    const float x = logits[0][b], y = logits[1][b], largest = x > y ? x : y;
    const float log_sum = largest + std::log(std::exp(x - largest) + std::exp(y - largest));
    const float log_p = x - log_sum, log_q = y - log_sum, p = std::exp(log_p), q = std::exp(log_q);
    const float second = action[b];  // 1: the second action was taken
    const float ratio = std::exp((second != 0 ? log_q : log_p) - old_log_prob[b]);
    const float clipped = ratio < 1 - kClip ? 1 - kClip : ratio > 1 + kClip ? 1 + kClip : ratio;
    const float free = ratio * advantage[b], bounded = clipped * advantage[b];
    const float minus_entropy = p * log_p + q * log_q;
    loss += kOfEntropy * minus_entropy - (free < bounded ? free : bounded);
    const float by_log_prob = free <= bounded ? -free / kBatch : 0.0F;
    d_logits[0][b] = by_log_prob * (1 - second - p) + kOfEntropy / kBatch * p * (log_p - minus_entropy);
    d_logits[1][b] = by_log_prob * (second - q) + kOfEntropy / kBatch * q * (log_q - minus_entropy);
  }
  return loss / kBatch;
}

/// The gradients of the head and of the second layer's tanh.
HINDCAST_INLINE void head_backward() {
  constexpr int kVectors = kWidth / kLanes;
  const Parameters& p = parameters;
  Floats of_first[kVectors] = {}, of_second[kVectors] = {}, of_bias2[kVectors] = {};
  float of_bias3[2] = {};
  for (int b = 0; b < kBatch; ++b) {
    const float d0 = d_logits[0][b], d1 = d_logits[1][b];
    of_bias3[0] += d0;
    of_bias3[1] += d1;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const Floats h = load(hidden2 + b * kWidth + kLanes * i);
      of_first[i] += h * d0;
      of_second[i] += h * d1;
      const Floats d = (load(p.weight3 + kLanes * i) * d0 + load(p.weight3 + kWidth + kLanes * i) * d1) * (1 - h * h);
      of_bias2[i] += d;
      store(d_hidden2 + b * kWidth + kLanes * i, d);
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    store(gradients.weight3 + kLanes * i, of_first[i]);
    store(gradients.weight3 + kWidth + kLanes * i, of_second[i]);
    store(gradients.bias2 + kLanes * i, of_bias2[i]);
  }
  gradients.bias3[0] = of_bias3[0];
  gradients.bias3[1] = of_bias3[1];
}

float step(float rate) {
  const Parameters& p = parameters;
  transpose<kWidth, kIn>(p.weight1, turned1);
  transpose<kWidth, kWidth>(p.weight2, turned2);
  product<kBatch, kWidth, kIn, kIn, 1>(seen, turned1, hidden1, [&](Floats x, int, int n) { return tanh_of(x + load(p.bias1 + n)); });
  product<kBatch, kWidth, kWidth, kWidth, 1>(hidden1, turned2, hidden2,
                                             [&](Floats x, int, int n) { return tanh_of(x + load(p.bias2 + n)); });
  head();
  const float loss = surrogate();
  head_backward();
  product<kWidth, kWidth, kBatch, 1, kWidth>(d_hidden2, hidden1, gradients.weight2, AsItIs());
  product<kBatch, kWidth, kWidth, kWidth, 1>(d_hidden2, p.weight2, d_hidden1, [](Floats x, int m, int n) {
    const Floats h = load(hidden1 + m * kWidth + n);
    return x * (1 - h * h);
  });
  product<kIn, kWidth, kBatch, 1, kIn>(seen, d_hidden1, d_turned1, AsItIs());
  transpose<kIn, kWidth>(d_turned1, gradients.weight1);
  sum_rows<kBatch, kWidth>(d_hidden1, gradients.bias1);
  clip_and_update(parameters.weight1, gradients.weight1, means.weight1, squares.weight1, kParameters, 0.5F, rate, ++steps);
  return loss;
}

void start() {
  std::memset(&means, 0, sizeof means);
  std::memset(&squares, 0, sizeof squares);
  steps = 0;
}

constexpr HandWritten::Input kInputs[] = {{parameters.weight1, kWidth* kIn},
                                          {parameters.bias1, kWidth},
                                          {parameters.weight2, kWidth* kWidth},
                                          {parameters.bias2, kWidth},
                                          {parameters.weight3, 2 * kWidth},
                                          {parameters.bias3, 2},
                                          {seen, kBatch* kIn},
                                          {action, kBatch},
                                          {old_log_prob, kBatch},
                                          {advantage, kBatch}};
constexpr HandWritten kStep = {kVectorsOfStep, kInputs, sizeof kInputs / sizeof *kInputs, start, step};

}  // namespace

const HandWritten* ppo_by_hand() { return &kStep; }

}  // namespace hindcast::bench
