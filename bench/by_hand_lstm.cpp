// The step of lstm/20x64/b32: a cell over 20 steps, mean squared error of its outputs. One product computes the input's part of all steps;
// the weights' gradients are also one product each.

#include <cmath>
#include <cstring>

#include "bench/by_hand.h"
#include "bench/by_hand_math.h"

namespace hindcast::bench {
namespace {

constexpr int kSteps = 20, kBatch = 32, kWidth = 64, kGates = 4 * kWidth;
constexpr int kRow = kBatch * kWidth, kGateRow = kBatch * kGates;  // per step

struct alignas(64) Parameters {
  float of_input[kGates * kWidth], input_bias[kGates], of_state[kGates * kWidth], state_bias[kGates];
};
constexpr int kParameters = sizeof(Parameters) / sizeof(float);
Parameters parameters, gradients, means, squares;
alignas(64) float input[kBatch * kSteps * kWidth], target[kBatch * kSteps * kWidth];  // [batch, step, width]; all below [step, batch, ...]
alignas(64) float inputs[kSteps * kRow], turned_input[kWidth * kGates], turned_state[kWidth * kGates], bias[kGates];
alignas(64) float from_input[kSteps * kGateRow], gates[kSteps * kGateRow], d_gates[kSteps * kGateRow];
alignas(64) float states[(kSteps + 1) * kRow], memories[(kSteps + 1) * kRow], tanhs[kSteps * kRow], errors[kSteps * kRow];
alignas(64) float d_state[kRow], d_memory[kRow];
double steps = 0;

/// A step of the cell after its products; adds the squares of its errors.
HINDCAST_INLINE void cell(int step, Floats& sum) {
  for (int b = 0; b < kBatch; ++b) {
    for (int k = 0; k < kWidth; k += kLanes) {
      float* gate = gates + step * kGateRow + b * kGates + k;
      const int at = step * kRow + b * kWidth + k;
      const Floats forget = sigmoid_of(load(gate)), write = sigmoid_of(load(gate + kWidth));
      const Floats fresh = tanh_of(load(gate + 2 * kWidth)), show = sigmoid_of(load(gate + 3 * kWidth));
      store(gate, forget);
      store(gate + kWidth, write);
      store(gate + 2 * kWidth, fresh);
      store(gate + 3 * kWidth, show);
      const Floats memory = forget * load(memories + at) + write * fresh, shown = tanh_of(memory);
      store(memories + at + kRow, memory);
      store(tanhs + at, shown);
      const Floats state = show * shown, error = state - load(target + (b * kSteps + step) * kWidth + k);
      store(states + at + kRow, state);
      store(errors + at, error);
      sum += error * error;
    }
  }
}

HINDCAST_INLINE void cell_backward(int step) {
  constexpr float kOfError = 2.0F / (kSteps * kRow);
  for (int b = 0; b < kBatch; ++b) {
    for (int k = 0; k < kWidth; k += kLanes) {
      const float* gate = gates + step * kGateRow + b * kGates + k;
      float* d_gate = d_gates + step * kGateRow + b * kGates + k;
      const int at = step * kRow + b * kWidth + k, here = b * kWidth + k;
      const Floats forget = load(gate), write = load(gate + kWidth), fresh = load(gate + 2 * kWidth), show = load(gate + 3 * kWidth);
      const Floats shown = load(tanhs + at);
      const Floats of_state = load(d_state + here) + load(errors + at) * kOfError;
      const Floats of_memory = load(d_memory + here) + of_state * show * (1 - shown * shown);
      store(d_gate, of_memory * load(memories + at) * forget * (1 - forget));
      store(d_gate + kWidth, of_memory * fresh * write * (1 - write));
      store(d_gate + 2 * kWidth, of_memory * write * (1 - fresh * fresh));
      store(d_gate + 3 * kWidth, of_state * shown * show * (1 - show));
      store(d_memory + here, of_memory * forget);
    }
  }
}

HINDCAST_INLINE float forward() {
  const Parameters& p = parameters;
  for (int b = 0; b < kBatch; ++b) {
    for (int t = 0; t < kSteps; ++t) std::memcpy(inputs + t * kRow + b * kWidth, input + (b * kSteps + t) * kWidth, kWidth * sizeof(float));
  }
  transpose<kGates, kWidth>(p.of_input, turned_input);
  transpose<kGates, kWidth>(p.of_state, turned_state);
  for (int n = 0; n < kGates; ++n) bias[n] = p.input_bias[n] + p.state_bias[n];
  product<kSteps * kBatch, kGates, kWidth, kWidth, 1>(inputs, turned_input, from_input,
                                                      [](Floats x, int, int n) { return x + load(bias + n); });
  Floats sum = {};
  for (int t = 0; t < kSteps; ++t) {
    const float* before = from_input + t * kGateRow;
    product<kBatch, kGates, kWidth, kWidth, 1>(states + t * kRow, turned_state, gates + t * kGateRow,
                                               [before](Floats x, int m, int n) { return x + load(before + m * kGates + n); });
    cell(t, sum);
  }
  return sum_of(sum) / (kSteps * kRow);
}

float step(float rate) {
  const float loss = forward();
  std::memset(d_state, 0, sizeof d_state);
  std::memset(d_memory, 0, sizeof d_memory);
  for (int t = kSteps - 1; t >= 0; --t) {
    cell_backward(t);
    if (t > 0) product<kBatch, kWidth, kGates, kGates, 1>(d_gates + t * kGateRow, parameters.of_state, d_state, AsItIs());
  }
  product<kGates, kWidth, kSteps * kBatch, 1, kGates>(d_gates, inputs, gradients.of_input, AsItIs());
  product<kGates, kWidth, kSteps * kBatch, 1, kGates>(d_gates, states, gradients.of_state, AsItIs());
  sum_rows<kSteps * kBatch, kGates>(d_gates, gradients.input_bias);
  std::memcpy(gradients.state_bias, gradients.input_bias, sizeof gradients.state_bias);
  clip_and_update(parameters.of_input, gradients.of_input, means.of_input, squares.of_input, kParameters, 1.0F, rate, ++steps);
  return loss;
}

void start() {
  std::memset(&means, 0, sizeof means);
  std::memset(&squares, 0, sizeof squares);
  steps = 0;
}

constexpr HandWritten::Input kInputs[] = {
    {parameters.of_input, kGates* kWidth}, {parameters.input_bias, kGates}, {parameters.of_state, kGates* kWidth},
    {parameters.state_bias, kGates},       {input, kSteps* kRow},           {target, kSteps* kRow}};
constexpr HandWritten kStep = {kVectorsOfStep, kInputs, sizeof kInputs / sizeof *kInputs, start, step};

}  // namespace

const HandWritten* lstm_by_hand() { return &kStep; }

}  // namespace hindcast::bench
