#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace hindcast::bench {

/// A program whose backwards differ from step to step. `forward` depends only on the number of the step, so that both engines meet the same
/// graphs in the same order.
struct Program {
  std::vector<at::Tensor> leaves;
  std::function<at::Tensor(int64_t step)> forward;
  std::function<bool(int64_t step)> is_timed = {};  // none: every step is

  bool times(int64_t step) const { return !is_timed || is_timed(step); }
};

using BuildProgram = std::function<Program()>;

/// Graphs of this many ops, drawn anew in each step.
Program new_structures(int ops, int64_t floats);
/// This many such graphs, cyclically in the same order.
Program structures_in_turn(int count, int ops);

/// Two backwards alternate, as in a GAN: one is always the same, the other never. Only one of them is timed.
enum class Kind : uint8_t { Same, New };
Program two_kinds(int ops, Kind timed);

/// A recurrent policy and its policy gradient: an episode takes 10 to 200 steps.
Program episodes();
/// A recurrent network over sequences of 64 lengths.
Program rnn_lengths();

/// The backward after a torch.compile'd forward: one opaque node, and ten leaves.
Program opaque(int64_t floats_of_each);

/// A chain of this many ops, each with a hook. In every step another hook returns its gradient with other strides.
Program deviating_hook(int ops);

}  // namespace hindcast::bench
