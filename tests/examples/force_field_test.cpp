// The example's net learns the same with the stock engine, under a guard and by train_step(), on clusters of other sizes in each step.

#include <hindcast/hindcast.h>
#include <hindcast/train_step.h>

#include <gtest/gtest.h>

#include <vector>

#include "examples/force_field/net.h"
#include "examples/force_field/potential.h"

namespace hindcast::tests {
namespace {

using namespace force_field;

constexpr int kSteps = 40;

std::vector<Cluster> clusters() {
  at::manual_seed(2);
  std::vector<Cluster> made;
  for (int i = 0; i < kSteps; ++i) made.push_back(random_cluster(5 + (3 * i) % 11));
  return made;
}

template <class Step>
std::vector<double> losses(const Step& step) {
  std::vector<double> seen;
  for (const Cluster& cluster : clusters()) {
    seen.push_back(step(cluster).template item<double>());
    hindcast::wait();
  }
  return seen;
}

std::vector<double> plain_losses() {
  at::manual_seed(1);
  Net net(16, 2);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  const auto step = [&](const Cluster& cluster) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(*net, cluster.positions, cluster.pairs.to, cluster.pairs.of, cluster.energy_per_atom, cluster.forces);
    loss.backward();
    optimizer.step();
    return loss;
  };
  return losses(step);
}

void expect_near(const std::vector<double>& given, const std::vector<double>& expected) {
  for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(given[i], expected[i], 1e-3 * expected[i] + 1e-6) << "step " << i;
}

class ForceField : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }  // the clusters are small
};

TEST_F(ForceField, LearnsTheSameUnderAGuard) {
  const std::vector<double> expected = plain_losses();
  hindcast::reset();
  {
    const auto guard = hindcast::enable(compilers::fused());
    expect_near(plain_losses(), expected);
  }
  const Stats stats = hindcast::stats();
  EXPECT_TRUE(stats.fallbacks_by_reason.empty()) << hindcast::report();
  EXPECT_LE(stats.misses, 8U) << "two backwards a step, each of one structure, and then for all sizes";
}

TEST_F(ForceField, LearnsTheSameInOneProgram) {
  const std::vector<double> expected = plain_losses();
  at::manual_seed(1);
  Net net(16, 2);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  auto step = hindcast::train_step(optimizer, net, loss_of);
  expect_near(losses([&](const Cluster& cluster) {
                return step(cluster.positions, cluster.pairs.to, cluster.pairs.of, cluster.energy_per_atom, cluster.forces);
              }),
              expected);
  const auto stats = step.stats();
  EXPECT_GE(stats.hits, kSteps - 6U) << stats.traces << " traces, " << stats.eager << " eager";
}

TEST_F(ForceField, ForcesOfThePotentialAreItsSlopes) {
  const Cluster cluster = random_cluster(7);
  const at::Tensor moved = cluster.positions.to(at::kDouble);
  for (int64_t dim = 0; dim < 3; ++dim) {
    const auto energy = [&](double by) {
      at::Tensor there = moved.clone();
      there[2][dim] += by;
      return labelled(there).energy.item<double>();
    };
    EXPECT_NEAR(-(energy(1e-4) - energy(-1e-4)) / 2e-4, labelled(moved).forces[2][dim].item<double>(), 1e-5);
  }
}

}  // namespace
}  // namespace hindcast::tests
