// The step of mlp/64-128-64/b32: two layers with ReLU, cross entropy.

#include <cmath>
#include <cstring>

#include "bench/by_hand.h"
#include "bench/by_hand_math.h"

namespace hindcast::bench {
namespace {

constexpr int kBatch = 32, kIn = 64, kHidden = 128, kOut = 64;

struct alignas(64) Parameters {
  float weight1[kHidden * kIn], bias1[kHidden], weight2[kOut * kHidden], bias2[kOut];
};
constexpr int kParameters = sizeof(Parameters) / sizeof(float);
Parameters parameters, gradients, means, squares;
alignas(64) float input[kBatch * kIn], target[kBatch];
alignas(64) float turned1[kIn * kHidden], turned2[kHidden * kOut], hidden[kBatch * kHidden], logits[kBatch * kOut],
    d_hidden[kBatch * kHidden];
double steps = 0;

/// The mean over a batch of -log_softmax(logits)[target]; replaces the logits by their gradient.
HINDCAST_INLINE float cross_entropy() {
  constexpr int kVectors = kOut / kLanes;
  float loss = 0;
  for (int b = 0; b < kBatch; ++b) {
    float* row = logits + b * kOut;
    const int wanted = static_cast<int>(target[b]);
    Floats x[kVectors];
    for (int i = 0; i < kVectors; ++i) x[i] = load(row + kLanes * i);
    Floats most = x[0];
    for (int i = 1; i < kVectors; ++i) most = x[i] > most ? x[i] : most;
    const float largest = largest_of(most), of_wanted = row[wanted] - largest;
    Floats sums = {};
    for (int i = 0; i < kVectors; ++i) sums += x[i] = exp_of(x[i] - largest);
    const float sum = sum_of(sums), factor = 1.0F / (kBatch * sum);
    for (int i = 0; i < kVectors; ++i) store(row + kLanes * i, x[i] * factor);
    row[wanted] -= 1.0F / kBatch;
    loss += std::log(sum) - of_wanted;
  }
  return loss / kBatch;
}

float step(float rate) {
  const Parameters& p = parameters;
  transpose<kHidden, kIn>(p.weight1, turned1);
  transpose<kOut, kHidden>(p.weight2, turned2);
  product<kBatch, kHidden, kIn, kIn, 1>(input, turned1, hidden, [&](Floats x, int, int n) {
    const Floats y = x + load(p.bias1 + n);
    return where(y > 0, y);
  });
  product<kBatch, kOut, kHidden, kHidden, 1>(hidden, turned2, logits, [&](Floats x, int, int n) { return x + load(p.bias2 + n); });
  const float loss = cross_entropy();
  product<kOut, kHidden, kBatch, 1, kOut>(logits, hidden, gradients.weight2, AsItIs());
  product<kBatch, kHidden, kOut, kOut, 1>(logits, p.weight2, d_hidden,
                                          [](Floats x, int m, int n) { return where(load(hidden + m * kHidden + n) > 0, x); });
  product<kHidden, kIn, kBatch, 1, kHidden>(d_hidden, input, gradients.weight1, AsItIs());
  sum_rows<kBatch, kOut>(logits, gradients.bias2);
  sum_rows<kBatch, kHidden>(d_hidden, gradients.bias1);
  clip_and_update(parameters.weight1, gradients.weight1, means.weight1, squares.weight1, kParameters, 1.0F, rate, ++steps);
  return loss;
}

void start() {
  std::memset(&means, 0, sizeof means);
  std::memset(&squares, 0, sizeof squares);
  steps = 0;
}

constexpr HandWritten::Input kInputs[] = {
    {parameters.weight1, kHidden* kIn}, {parameters.bias1, kHidden}, {parameters.weight2, kOut* kHidden},
    {parameters.bias2, kOut},           {input, kBatch* kIn},        {target, kBatch}};
constexpr HandWritten kStep = {kVectorsOfStep, kInputs, sizeof kInputs / sizeof *kInputs, start, step};

}  // namespace

const HandWritten* mlp_by_hand() { return &kStep; }

}  // namespace hindcast::bench
