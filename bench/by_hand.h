#pragma once

// Training steps as one C++ function each, without a framework: a lower bound for a step's time.

namespace hindcast::bench {

/// The vectors of x86 processors. The products are written for the first two, not for `Other`.
enum class Vectors { Avx512, Avx2, Other };

/// A step of one row: forward, loss, backward, clipping by the norm and Adam, on its own memory. Each exists once per process.
struct HandWritten {
  struct Input {
    float* values;
    int count;
  };
  Vectors vectors;      // that it was compiled for
  const Input* inputs;  // filled by the caller: the parameters, then the data, in the order of the row's Workload
  int input_count;
  void (*start)();            // forgets Adam's state
  float (*step)(float rate);  // the loss before the update
};

/// The row's step.
const HandWritten* mlp_by_hand();   // mlp({64, 128, 64}, 32)
const HandWritten* ppo_by_hand();   // ppo(8, 64, 2, 64)
const HandWritten* lstm_by_hand();  // lstm(64, Outputs::Kept)

}  // namespace hindcast::bench
