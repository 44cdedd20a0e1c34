#include "bench/changing_programs.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <random>
#include <utility>

namespace hindcast::bench {
namespace {

using at::Tensor;
using Random = std::mt19937_64;

constexpr int64_t kTiny = 16;

Tensor leaf_of(Tensor values) { return values.set_requires_grad(true); }
Tensor parameter(at::IntArrayRef sizes) { return leaf_of(at::randn(sizes) / std::sqrt(static_cast<double>(sizes[0]))); }

// The same in every process and library, unlike std::uniform_int_distribution.
size_t below(size_t bound, Random& random) { return static_cast<size_t>(random() % bound); }

// Random graphs over four leaves, from a seed. Every op is one node, reads one or two of the four current values and replaces one that it
// has read, so that the backward visits all of them. As in the chains, factors are near 1.
class RandomGraphs {
 public:
  explicit RandomGraphs(int64_t floats) : factor_(at::linspace(0.9995, 1.0005, floats)) {
    for (int i = 0; i < 4; ++i) leaves_.push_back(leaf_of(at::linspace(-0.1 * (i + 1), 0.1, floats)));
  }

  const std::vector<Tensor>& leaves() const { return leaves_; }

  Tensor operator()(uint64_t seed, int ops) const {
    Random random(seed);
    std::vector<Tensor> values = leaves_;
    for (int i = 0; i < ops; ++i) {
      const size_t at = below(values.size(), random);
      const Tensor& other = values[(at + 1 + below(values.size() - 1, random)) % values.size()];
      values[at] = apply(below(8, random), values[at], other);
    }
    return at::cat(values).sum();
  }

 private:
  Tensor apply(size_t op, const Tensor& x, const Tensor& other) const {
    switch (op) {
      case 0:
        return at::mul(x, 1.001);
      case 1:
        return at::add(x, 1e-4);
      case 2:
        return at::sin(x);
      case 3:
        return at::tanh(x);
      case 4:
        return at::mul(x, factor_);
      case 5:
        return at::lerp(x, other, 0.5);
      case 6:
        return at::add(x, other, 0.01);
      default:
        return at::addcmul(x, other, factor_, 0.01);
    }
  }

  std::vector<Tensor> leaves_;
  Tensor factor_;
};

// A custom function that is not declared traceable: its backward is called as itself.
struct Opaque : torch::autograd::Function<Opaque> {
  template <class... Leaves>  // separate arguments: LibTorch does not look into lists
  static Tensor forward(torch::autograd::AutogradContext* context, const Leaves&... leaves) {
    context->save_for_backward({leaves...});
    return at::ones({});
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    torch::autograd::variable_list gradients;
    for (const Tensor& saved : context->get_saved_variables()) gradients.push_back(saved * incoming[0]);
    return gradients;
  }
};

template <size_t... i>
Program opaque_of(int64_t floats_of_each, std::index_sequence<i...>) {
  const std::vector<Tensor> leaves = {((void)i, leaf_of(at::randn({floats_of_each})))...};
  return {leaves, [leaves](int64_t) { return Opaque::apply(leaves[i]...); }};
}

}  // namespace

Program new_structures(int ops, int64_t floats) {
  const RandomGraphs graphs(floats);
  return {graphs.leaves(), [graphs, ops](int64_t step) { return graphs(static_cast<uint64_t>(step), ops); }};
}

Program structures_in_turn(int count, int ops) {
  const RandomGraphs graphs(kTiny);
  return {graphs.leaves(), [graphs, count, ops](int64_t step) { return graphs(static_cast<uint64_t>(step % count), ops); }};
}

Program two_kinds(int ops, Kind timed) {
  const RandomGraphs graphs(kTiny);
  const auto is_new = [](int64_t step) { return step % 2 == 1; };
  return {graphs.leaves(), [=](int64_t step) { return graphs(is_new(step) ? static_cast<uint64_t>(step) : 0, ops); },
          [=](int64_t step) { return is_new(step) == (timed == Kind::New); }};
}

Program episodes() {
  constexpr int64_t kObserved = 8, kWidth = 16, kActions = 4;
  const Tensor of_input = parameter({kObserved, kWidth}), of_state = parameter({kWidth, kWidth}), bias = parameter({kWidth});
  const Tensor head = parameter({kWidth, kActions});
  const Tensor observed = at::randn({1, kObserved}), start = at::zeros({1, kWidth});
  return {{of_input, of_state, bias, head}, [=](int64_t step) {
            Random random(static_cast<uint64_t>(step));
            const size_t length = 10 + below(191, random);
            Tensor state = start;
            std::vector<Tensor> chosen;
            for (size_t i = 0; i < length; ++i) {
              state = at::tanh(at::addmm(at::addmm(bias, observed, of_input), state, of_state));
              const Tensor actions = at::log_softmax(at::mm(state, head), 1);
              // The choice is data: as an index in the graph, each would need its own capture.
              const Tensor action = at::scalar_tensor(static_cast<int64_t>(below(kActions, random)), at::kLong).view({1, 1});
              chosen.push_back(actions.gather(1, action));
            }
            return at::cat(chosen).mean();
          }};
}

Program rnn_lengths() {
  constexpr int64_t kBatch = 16, kWidth = 32, kShortest = 5, kLengths = 64;
  const Tensor of_input = parameter({kWidth, kWidth}), of_state = parameter({kWidth, kWidth}), bias = parameter({kWidth});
  const Tensor input = at::randn({kShortest + kLengths, kBatch, kWidth}), target = at::randn({kBatch, kWidth});
  return {{of_input, of_state, bias}, [=](int64_t step) {
            Random random(static_cast<uint64_t>(step));
            const auto length = kShortest + static_cast<int64_t>(below(kLengths, random));
            Tensor state = at::zeros({kBatch, kWidth});
            for (int64_t i = 0; i < length; ++i) state = at::tanh(at::addmm(at::addmm(bias, input[i], of_input), state, of_state));
            return at::mse_loss(state, target);
          }};
}

Program opaque(int64_t floats_of_each) { return opaque_of(floats_of_each, std::make_index_sequence<10>()); }

Program deviating_hook(int ops) {
  const Tensor x = leaf_of(at::linspace(-0.1, 0.1, kTiny).view({4, 4}));
  return {{x}, [x, ops](int64_t step) {
            Random random(static_cast<uint64_t>(step));
            const auto deviating = static_cast<int>(below(static_cast<size_t>(ops), random));
            Tensor y = x;
            for (int i = 0; i < ops; ++i) {
              y = i % 2 == 0 ? at::mul(y, 1.001) : at::sin(y);
              const bool deviates = i == deviating;
              y.register_hook([deviates](const Tensor& grad) { return deviates ? grad.t().contiguous().t() : grad; });
            }
            return y.sum();
          }};
}

}  // namespace hindcast::bench
