// An exception in the k-th call of a hook, for every k: the grads that were due are written, the others are untouched, released nodes stay
// released, and the next backward works. On a miss and on a hit.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

/// A small network with hooks of every kind, whose k-th call throws.
class Network {
 public:
  explicit Network(Log& log) : log_(log) {
    for (int i = 0; i < 3; ++i) {
      weights_.push_back(leaf({4, 4}));
      biases_.push_back(leaf({4}));
      weights_.back().register_hook([this, i](at::Tensor) { call("weight " + std::to_string(i)); });
      hindcast::on_grad_ready(biases_.back(), [this, i](const at::Tensor&) { call("bias ready " + std::to_string(i)); });
    }
  }

  at::Tensor loss() {
    auto x = at::randn({2, 4});
    for (int i = 0; i < 3; ++i) {
      x = at::addmm(biases_[i], x, weights_[i]);
      x.register_hook([this, i](at::Tensor) { call("activation " + std::to_string(i)); });
      x.grad_fn()->add_pre_hook(pre_hook([this, i](const variable_list& grads) {
        call("pre hook " + std::to_string(i));
        return grads;
      }));
      x.grad_fn()->add_post_hook(post_hook([this, i](const variable_list& outputs, const variable_list&) {
        call("post hook " + std::to_string(i));
        return outputs;
      }));
      x = x.tanh();
    }
    return x.exp().sum();
  }

  void throw_at(int call) { remaining_ = call; }

  void show_grads() const {
    for (int i = 0; i < 3; ++i) {
      log_.show("weight " + std::to_string(i), weights_[i].grad());
      log_.show("bias " + std::to_string(i), biases_[i].grad());
    }
  }

 private:
  void call(const std::string& name) {
    log_.note(name);
    if (remaining_-- == 0) {
      throw std::runtime_error("thrown by " + name);
    }
  }

  Log& log_;
  std::vector<at::Tensor> weights_, biases_;
  int remaining_ = -1;
};

constexpr int kHookCalls = 15;  // 3 layers: activation, pre, post, weight, bias ready

class ThrowingHook : public testing::TestWithParam<int> {};

TEST_P(ThrowingHook, OnAMiss) {
  expect_same([k = GetParam()](Log& log) {
    hindcast::reset();
    Network network(log);
    network.throw_at(k);
    log.attempt("throwing backward", [&] { network.loss().backward(); });
    network.show_grads();
    network.throw_at(-1);
    log.attempt("next backward", [&] { network.loss().backward(); });
    network.show_grads();
  });
}

TEST_P(ThrowingHook, OnAHit) {
  expect_same(
      [k = GetParam()](Log& log) {
        Network network(log);
        network.throw_at(-1);
        network.loss().backward();
        network.loss().backward();
        network.throw_at(k);
        log.attempt("throwing backward", [&] { network.loss().backward(); });
        network.show_grads();
        network.throw_at(-1);
        log.attempt("next backward", [&] { network.loss().backward(); });
        network.show_grads();
      },
      Takeover::Hits);
}

TEST_P(ThrowingHook, ReleasedNodesStayReleased) {
  expect_same([k = GetParam()](Log& log) {
    Network network(log);
    for (const int at : {-1, k}) {
      network.throw_at(at);
      const auto loss = network.loss();
      log.attempt("first backward", [&] { loss.backward(); });
      network.throw_at(-1);
      log.attempt("the same graph again", [&] { loss.backward(); });
      network.show_grads();
    }
  });
}

TEST_P(ThrowingHook, RetainedNodesCanRunAgain) {
  expect_same([k = GetParam()](Log& log) {
    Network network(log);
    for (const int at : {-1, k}) {
      network.throw_at(at);
      const auto loss = network.loss();
      log.attempt("first backward", [&] { loss.backward({}, /*retain_graph=*/true); });
      network.throw_at(-1);
      log.attempt("the same graph again", [&] { loss.backward(); });
      network.show_grads();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Hooks, ThrowingHook, testing::Range(0, kHookCalls));

TEST(ThrowingHooks, AreAsManyAsTheTestsThrowIn) {
  Log log;
  Network network(log);
  network.loss().backward();
  EXPECT_EQ(log.events().size(), kHookCalls);
}

TEST(ThrowingHooks, GuardStaysInForce) {
  const auto guard = hindcast::enable();
  const auto x = leaf({3});
  x.register_hook([](at::Tensor) { throw std::runtime_error("hook"); });
  EXPECT_THROW(x.sin().sum().backward(), std::runtime_error);
  EXPECT_TRUE(hindcast::active());
  hindcast::reset();
  leaf({3}).sin().sum().backward();
  EXPECT_EQ(hindcast::stats().backwards, 1U);
}

}  // namespace
}  // namespace hindcast::tests
