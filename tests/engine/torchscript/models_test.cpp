// The models of examples/molecular_dynamics: forces compared with LibTorch's, with neighbour lists that change in each step.

#include "examples/molecular_dynamics/atoms.h"

#include <hindcast/hindcast.h>
#include <hindcast/jit.h>

#include <gtest/gtest.h>
#include <torch/script.h>

#include <string>
#include <vector>

namespace hindcast::tests {
namespace {

using namespace molecular_dynamics;

class Models : public testing::TestWithParam<const char*> {
 protected:
  const std::string file_ = std::string(HINDCAST_SOURCE_DIR "/examples/molecular_dynamics/") + GetParam() + ".pt";
};

// Relative to the largest force; for sums of a few hundred terms in float32.
constexpr double kRounding = 2e-5;

void expect_near(const at::Tensor& given, const at::Tensor& expected, int step) {
  ASSERT_LE((given - expected).abs().max().item<double>(), kRounding * expected.abs().max().item<double>()) << "step " << step;
}

TEST_P(Models, ForcesOfChangingNeighbours) {
  reset();
  torch::manual_seed(0);
  auto stock = torch::jit::load(file_);
  auto prepared = jit_load(file_);
  AotOptions options;
  options.async = false;
  options.back_off = false;
  const auto compiled = aot_module(jit_load(file_), options);
  const auto whole_call = aot_function(
      [&](const torch::Tensor& positions, const torch::Tensor& species, const torch::Tensor& pairs) {
        const auto x = positions.detach().requires_grad_();
        return -torch::autograd::grad({prepared.forward({x, species, pairs}).toTensor()}, {x})[0];
      },
      options);
  Atoms atoms = cluster(12);
  const auto call = [&](const auto& model, const torch::Tensor& positions) {
    const auto pairs = pairs_within(positions, 3.2);
    return forces_of(
        [&](const torch::Tensor& x) {
          return model(std::vector<c10::IValue>{x, atoms.species, pairs}).toTensor();
        },
        positions);
  };
  const auto by_stock = [&](const torch::Tensor& positions) { return call([&](auto inputs) { return stock.forward(inputs); }, positions); };
  Options of_guard;
  of_guard.async = false;
  auto forces = by_stock(atoms.positions);
  constexpr int kSteps = 60;
  for (int step = 0; step < kSteps; ++step) {
    forces = move(atoms, forces, by_stock);
    const auto guard = enable(of_guard);
    expect_near(call([&](auto inputs) { return prepared.forward(inputs); }, atoms.positions), forces, step);
    expect_near(call([&](auto inputs) { return compiled.forward(inputs); }, atoms.positions), forces, step);
    expect_near(whole_call(atoms.positions, atoms.species, pairs_within(atoms.positions, 3.2)), forces, step);
  }
  EXPECT_EQ(whole_call.stats().eager, 0);
  EXPECT_GE(stats().hits, 2 * kSteps - 12) << report();
  EXPECT_EQ(compiled.stats().eager, 0);
  EXPECT_GE(compiled.stats().hits, kSteps - 6);
}

INSTANTIATE_TEST_SUITE_P(Of, Models, testing::Values("schnet", "painn", "ani"), [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hindcast::tests
