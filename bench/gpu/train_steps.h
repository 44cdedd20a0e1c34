#pragma once

#include <benchmark/benchmark.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

// Whole training steps dominated by launches: forward, loss, backward, clipping by the norm and Adam, on a new batch in each step. Stock is
// LibTorch's own; hindcast is train_step(), in parts and as one CUDA graph. A number is the time of a block of steps, until the card is
// done, divided by the steps.

namespace hindcast::bench::gpu {

std::vector<std::string> train_rows();
void measure_train_steps(benchmark::State& state, const std::string& row, c10::Device device, int rounds);

}  // namespace hindcast::bench::gpu
