// A force field learns energies and forces of clusters of 6 to 20 atoms, with the stock engine, inside of hindcast::enable(), and by
// hindcast::train_step(). Then molecular dynamics run with the trained model.

#include <fmt/format.h>
#include <hindcast/hindcast.h>
#include <hindcast/train_step.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/force_field/net.h"
#include "examples/force_field/potential.h"

namespace {

using namespace force_field;

std::vector<Cluster> clusters(std::int64_t count) {
  std::vector<Cluster> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(random_cluster(6 + i % 15));
  return made;
}

/// Root mean square over all components.
double error_of_forces(Net& net, const std::vector<Cluster>& held_out) {
  double squares = 0, count = 0;
  for (const Cluster& cluster : held_out) {
    squares += (forces_of(*net, cluster.positions, cluster.pairs) - cluster.forces).square().sum().item<double>();
    count += static_cast<double>(cluster.forces.numel());
  }
  return std::sqrt(squares / count);
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

using Step = std::function<void(const Cluster&)>;
using MakeStep = std::function<Step(Net& net, torch::optim::Optimizer& optimizer)>;

/// The usual training step.
Step plain_step(Net& net, torch::optim::Optimizer& optimizer) {
  return [&](const Cluster& cluster) {
    optimizer.zero_grad();
    loss_of(*net, cluster.positions, cluster.pairs.to, cluster.pairs.of, cluster.energy_per_atom, cluster.forces).backward();
    optimizer.step();
  };
}

Step one_program(Net& net, torch::optim::Optimizer& optimizer) {
  auto step = std::make_shared<decltype(hindcast::train_step(optimizer, net, loss_of))>(hindcast::train_step(optimizer, net, loss_of));
  return [step](const Cluster& cluster) {
    (*step)(cluster.positions, cluster.pairs.to, cluster.pairs.of, cluster.energy_per_atom, cluster.forces);
  };
}

Net train(const std::string& name, const MakeStep& make_step, const std::vector<Cluster>& data, const std::vector<Cluster>& held_out,
          std::int64_t epochs) {
  torch::manual_seed(1);
  Net net;
  torch::optim::Adam optimizer(net->parameters());
  const Step step = make_step(net, optimizer);
  const double before = error_of_forces(net, held_out);
  double last = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(2e-3 * std::pow(0.75, epoch));
    last = seconds_of([&] {
      for (const Cluster& cluster : data) step(cluster);
    });
  }
  fmt::print("{:24} {:7.0f} us per step in the last epoch, error of the forces {:.3f} -> {:.3f}\n", name,
             1e6 * last / static_cast<double>(data.size()), before, error_of_forces(net, held_out));
  return net;
}

/// Velocity Verlet with the net's forces from a cluster at rest. Prints the drift of the true energy, of which the net only learned the
/// slope.
void run_dynamics(Net& net, std::int64_t steps) {
  constexpr double kTime = 0.005;
  Cluster now = random_cluster(13);
  torch::Tensor velocities = torch::zeros_like(now.positions);
  torch::Tensor forces = forces_of(*net, now.positions, now.pairs);
  const double first = now.energy.item<double>();
  double farthest = 0, most_kinetic = 0;
  const double took = seconds_of([&] {
    for (std::int64_t i = 0; i < steps; ++i) {
      velocities = velocities + 0.5 * kTime * forces;
      now = labelled(now.positions + kTime * velocities);
      forces = forces_of(*net, now.positions, now.pairs);
      velocities = velocities + 0.5 * kTime * forces;
      const double kinetic = 0.5 * velocities.square().sum().item<double>();
      farthest = std::max(farthest, std::abs(now.energy.item<double>() + kinetic - first));
      most_kinetic = std::max(most_kinetic, kinetic);
    }
  });
  fmt::print(
      "dynamics of 13 atoms: {} steps in {:.2f} s; the true total energy of {:.2f} moves by {:.2f} at most, the kinetic one by {:.2f}\n",
      steps, took, first, farthest, most_kinetic);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 12;
  torch::set_num_threads(1);
  torch::manual_seed(0);
  const std::vector<Cluster> data = clusters(300), held_out = clusters(45);
  train("stock", plain_step, data, held_out, epochs);
  Net net = [&] {
    const auto guard = hindcast::enable();
    return train("hindcast::enable()", plain_step, data, held_out, epochs);
  }();
  train("hindcast::train_step()", one_program, data, held_out, epochs);
  const auto guard = hindcast::enable();
  run_dynamics(net, 1000);
}
