// Molecular dynamics with TorchScript models, as engines run them: energies and forces of a scripted model that was saved to a file, with
// neighbour lists that change from step to step. Each step measures a force call on LibTorch alone, inside of hindcast::enable(), with the
// model compiled by hindcast::aot_module(), and compiled as a whole.

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <hindcast/hindcast.h>
#include <hindcast/jit.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/molecular_dynamics/atoms.h"

namespace {

using namespace molecular_dynamics;

struct Settings {
  std::vector<std::string> models{"examples/molecular_dynamics/schnet.pt", "examples/molecular_dynamics/painn.pt",
                                  "examples/molecular_dynamics/ani.pt"};
  std::int64_t atoms = 24, compared_steps = 200, steps = 1000;
};

// Neighbours are kept up to this distance; models cut off at 3.
constexpr double kRadius = 3.4;

using Model = std::function<torch::Tensor(const torch::Tensor& positions, const torch::Tensor& species, const torch::Tensor& pairs)>;

/// Forces by the gradient of a model's energy.
Model by_backward(Model energy) {
  return [energy](const torch::Tensor& positions, const torch::Tensor& species, const torch::Tensor& pairs) {
    return forces_of([&](const torch::Tensor& x) { return energy(x, species, pairs); }, positions);
  };
}

/// A way to compute forces, and the times of its calls.
class Lane {
 public:
  Lane(std::string name, Model forces, bool under_guard) : name_(std::move(name)), forces_(std::move(forces)), under_guard_(under_guard) {}

  torch::Tensor forces(const Atoms& atoms, const torch::Tensor& positions) {
    const auto pairs = pairs_within(positions, kRadius);
    pairs_ = pairs.size(1);
    const auto start = std::chrono::steady_clock::now();
    hindcast::Options options;
    options.enabled = under_guard_;
    const auto guard = hindcast::enable(options);
    auto result = forces_(positions, atoms.species, pairs);
    times_.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    return result;
  }
  double median_us() const {
    auto sorted = times_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  const std::string& name() const { return name_; }
  std::int64_t pairs() const { return pairs_; }
  void forget_times() { times_.clear(); }

 private:
  std::string name_;
  Model forces_;
  bool under_guard_;
  std::vector<double> times_;
  std::int64_t pairs_ = 0;
};

/// Resident memory of this process.
double mebibytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

std::vector<Lane> lanes_of(const std::string& file) {
  const auto stock = std::make_shared<torch::jit::Module>(torch::jit::load(file));
  const auto prepared = std::make_shared<torch::jit::Module>(hindcast::jit_load(file));
  const auto compiled = std::make_shared<hindcast::AotJitModule>(hindcast::aot_module(hindcast::jit_load(file)));
  const auto energy_of = [](auto module) { return [module](const auto&... given) { return module->forward({given...}).toTensor(); }; };
  const auto whole_call = hindcast::aot_function([prepared](torch::Tensor positions, torch::Tensor species, torch::Tensor pairs) {
    const auto x = positions.detach().requires_grad_();
    return -torch::autograd::grad({prepared->forward({x, species, pairs}).toTensor()}, {x})[0];
  });
  std::vector<Lane> lanes;
  lanes.emplace_back("LibTorch", by_backward(energy_of(stock)), false);
  lanes.emplace_back("enable(), jit_load()", by_backward(energy_of(prepared)), true);
  lanes.emplace_back("and aot_module()", by_backward(energy_of(compiled)), true);
  lanes.emplace_back(
      "aot_function(forces)", [whole_call](const auto&... given) { return whole_call(given...); }, false);
  return lanes;
}

void run(const std::string& file, const Settings& settings) {
  torch::manual_seed(0);
  Atoms atoms = cluster(settings.atoms);
  std::vector<Lane> lanes = lanes_of(file);
  Lane& driver = lanes.back();
  torch::Tensor forces = driver.forces(atoms, atoms.positions);
  const auto step = [&] { forces = move(atoms, forces, [&](const torch::Tensor& x) { return driver.forces(atoms, x); }); };

  double farthest = 0;
  const auto compare = [&] {
    const auto expected = lanes.front().forces(atoms, atoms.positions);
    for (size_t i = 1; i < lanes.size(); ++i) {
      const auto given = i + 1 == lanes.size() ? forces : lanes[i].forces(atoms, atoms.positions);
      farthest = std::max(farthest, ((given - expected).abs().max() / expected.abs().max()).item<double>());
    }
  };
  // The JIT profiles its first runs, and kernels are compiled in the background.
  for (int i = 0; i < 20; ++i) {
    step();
    compare();
  }
  hindcast::wait();
  for (Lane& lane : lanes) lane.forget_times();
  for (std::int64_t i = 0; i < settings.compared_steps; ++i) {
    step();
    compare();
  }
  fmt::print("{}: {} atoms, {} pairs, forces equal to {:.1e} of the largest\n", file, settings.atoms, lanes.front().pairs(), farthest);
  for (const Lane& lane : lanes) {
    fmt::print("  {:22} {:7.0f} us per force call, {:.2f} times\n", lane.name(), lane.median_us(),
               lanes.front().median_us() / lane.median_us());
  }
  const double before = mebibytes();
  for (std::int64_t i = 0; i < settings.steps; ++i) step();
  const bool is_finite = atoms.positions.isfinite().all().item<bool>();
  fmt::print("  {} more steps: memory {:.0f} -> {:.0f} MiB{}\n", settings.steps, before, mebibytes(), is_finite ? "" : ", not finite");
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Molecular dynamics with TorchScript models");
  app.add_option("models", settings.models, "files of make_models.py");
  app.add_option("--atoms", settings.atoms, "how many")->check(CLI::PositiveNumber);
  app.add_option("--compared", settings.compared_steps, "steps that compare force calls")->check(CLI::PositiveNumber);
  app.add_option("--steps", settings.steps, "steps after these")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  for (const std::string& file : settings.models) run(file, settings);
}
