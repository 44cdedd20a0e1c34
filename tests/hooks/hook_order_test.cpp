// The order of hooks is that of the stock engine's queue, ties included: all AccumulateGrads tie, and run in the order of the heap.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "capture/recorder/libtorch_compat.h"
#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

std::vector<at::Tensor> leaves_with_hooks(Log& log, int count) {
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < count; ++i) {
    leaves.push_back(leaf({2}));
    leaves.back().register_hook([&log, i](at::Tensor) { log.note("leaf " + std::to_string(i)); });
  }
  return leaves;
}

class TiedLeaves : public testing::TestWithParam<int> {};

TEST_P(TiedLeaves, OfOneStack) {
  expect_same_steps(3, [count = GetParam()](Log& log, int) {
    const auto leaves = leaves_with_hooks(log, count);
    at::stack(leaves).sin().sum().backward();
  });
}

TEST_P(TiedLeaves, OfAChainOfAdditions) {
  expect_same_steps(3, [count = GetParam()](Log& log, int) {
    const auto leaves = leaves_with_hooks(log, count);
    auto sum = leaves[0];
    for (int i = 1; i < count; ++i) {
      sum = sum + leaves[i];
    }
    sum.sum().backward();
  });
}

TEST_P(TiedLeaves, OfAStackUsedTwice) {
  expect_same_steps(3, [count = GetParam()](Log& log, int) {
    const auto leaves = leaves_with_hooks(log, count);
    const auto forward = at::stack(leaves);
    const auto reversed = at::stack(std::vector<at::Tensor>(leaves.rbegin(), leaves.rend()));
    (forward * reversed).sum().backward();
  });
}

INSTANTIATE_TEST_SUITE_P(HookOrder, TiedLeaves, testing::Values(1, 2, 3, 7, 8, 50));

TEST(HookOrder, OfAccumulateGradsIsSeenByEveryKindOfTheirHooks) {
  expect_same_steps(3, [](Log& log, int) {
    const auto leaves = leaves_with_hooks(log, 8);
    std::vector<capture::NodePtr> accumulators;
    for (size_t i = 0; i < leaves.size(); ++i) {
      accumulators.push_back(torch::autograd::impl::grad_accumulator(leaves[i]));
      accumulators.back()->add_post_hook(post_hook([&log, i](const variable_list& outputs, const variable_list&) {
        log.note("post hook " + std::to_string(i));
        return outputs;
      }));
      hindcast::on_grad_ready(leaves[i], [&log, i](const at::Tensor&) { log.note("ready " + std::to_string(i)); });
    }
    at::stack(leaves).sin().sum().backward();
  });
}

TEST(HookOrder, LeavesComeAsSoonAsTheyAreReady) {
  expect_same_steps(3, [](Log& log, int) {
    std::vector<at::Tensor> weights;
    auto x = at::randn({2, 4});
    for (int i = 0; i < 6; ++i) {
      weights.push_back(leaf({4, 4}));
      weights.back().register_hook([&log, i](at::Tensor) { log.note("weight " + std::to_string(i)); });
      x = x.mm(weights.back());
      x.register_hook([&log, i](at::Tensor) { log.note("activation " + std::to_string(i)); });
      x = x.relu();
    }
    x.sum().backward();
  });
}

TEST(HookOrder, BranchesFollowTheSequenceNumbersOfTheForward) {
  expect_same_steps(3, [](Log& log, int) {
    const auto named = [&](const char* name, const at::Tensor& tensor) {
      tensor.register_hook([&log, name](at::Tensor) { log.note(name); });
      return tensor;
    };
    const auto x = named("x", leaf({3}));
    const auto a = named("a", x.sin());
    const auto b = named("b", x.cos());
    const auto c = named("c", a.exp());
    const auto d = named("d", b.exp());
    const auto e = named("e", a * d);
    named("f", (e + c + b) * a).sum().backward();
  });
}

TEST(HookOrder, ForwardPiecesBuiltInAnotherOrderThanTheyAreUsed) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    std::vector<at::Tensor> pieces{w.sin(), x.sin(), w.cos(), x.cos()};
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].register_hook([&log, i](at::Tensor) { log.note("piece " + std::to_string(i)); });
    }
    x.register_hook([&](at::Tensor) { log.note("x"); });
    w.register_hook([&](at::Tensor) { log.note("w"); });
    ((pieces[3] + pieces[0]) * (pieces[1] + pieces[2])).sum().backward();
  });
}

TEST(HookOrder, NodesWithEqualSequenceNumbersTie) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    std::vector<at::Tensor> branches;
    for (int i = 0; i < 9; ++i) {
      branches.push_back(x * i);
      branches.back().grad_fn()->set_sequence_nr(5);
      branches.back().register_hook([&log, i](at::Tensor) { log.note("branch " + std::to_string(i)); });
    }
    at::stack(branches).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(HookOrder, OfSeveralRoots) {
  expect_same_steps(3, [](Log& log, int) {
    const auto leaves = leaves_with_hooks(log, 4);
    std::vector<at::Tensor> roots;
    for (int i : {2, 0, 3, 1}) {
      roots.push_back(leaves[i].sin().sum());
      roots.back().register_hook([&log, i](at::Tensor) { log.note("root " + std::to_string(i)); });
    }
    torch::autograd::backward({roots[1], roots[0], roots[3], roots[2]});
  });
}

}  // namespace
}  // namespace hindcast::tests
