// How much a long run of changing graphs leaves resident, and how much of it malloc_trim() returns: memory that is free, but in pieces
// between used ones, where no large tensor fits. A heap has a history, so each engine gets a process of its own: this program again, with
// `--soak=...`, under malloc's and LibTorch's own settings, like a user's.

#include "bench/soak.h"

#include <ATen/ATen.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "bench/changing_programs.h"
#include "bench/harness.h"
#include "bench/memory.h"
#include "bench/suites.h"

namespace hindcast::bench {
namespace {

struct Soak {
  BuildProgram build;
  int64_t steps;
};

const std::map<std::string, Soak>& soaks() {
  static const std::map<std::string, Soak> all = {
      {"new_structures", {[] { return new_structures(20, (1 << 20) / 4); }, 2000}},
      {"16mb", {[] { return new_structures(20, (16 << 20) / 4); }, 40}},
      {"episodes", {[] { return episodes(); }, 1000}},
  };
  return all;
}

struct Outcome {
  double resident_mb = 0, trimmed_mb = 0, peak_mb = 0, seconds = 0;
};

// Runs the other process and reads the line that it prints.
Outcome soak_apart(const std::string& what, int threads, const Settings& settings) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "'" + self + "' --soak=" + what + " --threads=" + std::to_string(threads) +
                              (settings.quick ? " --quick" : "") + (settings.fused ? "" : " --eager");
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("could not start " + command);
  Outcome outcome;
  const int read = std::fscanf(pipe, "%lf %lf %lf %lf", &outcome.resident_mb, &outcome.trimmed_mb, &outcome.peak_mb, &outcome.seconds);
  if (::pclose(pipe) != 0 || read != 4) throw std::runtime_error(command + " failed");
  return outcome;
}

void measure(benchmark::State& state, const Settings& settings, const std::string& name) {
  const auto threads = static_cast<int>(state.counters["threads"]);
  try {
    for (auto _ : state) {
      const Outcome stock = soak_apart(name + "/stock", threads, settings);
      const Outcome ours = soak_apart(name + "/hindcast", threads, settings);
      state.counters["stock_resident_mb"] = stock.resident_mb;
      state.counters["resident_mb"] = ours.resident_mb;
      state.counters["stock_trimmed_mb"] = stock.trimmed_mb;
      state.counters["trimmed_mb"] = ours.trimmed_mb;
      state.counters["stock_resident_peak_mb"] = stock.peak_mb;
      state.counters["resident_peak_mb"] = ours.peak_mb;
      state.counters["stock_s"] = stock.seconds;
      state.counters["hindcast_s"] = ours.seconds;
      state.SetIterationTime(ours.seconds);
    }
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

int64_t steps_of(const Soak& soak, const Settings& settings) { return settings.quick ? soak.steps / 20 : soak.steps; }

}  // namespace

int run_soak(const Settings& settings) {
  const size_t slash = settings.soak.find('/');
  const auto soak = soaks().find(settings.soak.substr(0, slash));
  const std::string engine = slash == std::string::npos ? "" : settings.soak.substr(slash + 1);
  if (soak == soaks().end() || (engine != "stock" && engine != "hindcast")) {
    throw std::invalid_argument("--soak=" + settings.soak + ": write PROGRAM/stock or PROGRAM/hindcast, with a program of the soak rows");
  }
  at::set_num_threads(settings.threads.front());
  at::manual_seed(1);
  const Program program = soak->second.build();
  const int64_t steps = steps_of(soak->second, settings);
  Options options;
  options.compiler = settings.fused ? compilers::fused() : compilers::eager();
  std::optional<Guard> guard;
  if (engine == "hindcast") guard.emplace(enable(options));
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    for (const at::Tensor& leaf : program.leaves) leaf.mutable_grad().reset();
    program.forward(step).backward();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto mb = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const double resident = mb(resident_bytes());
  return_freed_pages();
  std::printf("%.1f %.1f %.1f %.3f\n", resident, mb(resident_bytes()), static_cast<double>(usage.ru_maxrss) / 1024, seconds.count());
  return 0;
}

void register_soak(const Settings& settings) {
  for (const auto& [name, soak] : soaks()) {
    const auto steps = static_cast<double>(steps_of(soak, settings));
    register_row(settings, "soak/" + name, 1, [settings, name = name, steps](benchmark::State& state) {
      state.counters["soak_steps"] = steps;
      measure(state, settings, name);
    });
  }
}

}  // namespace hindcast::bench
