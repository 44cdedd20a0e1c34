// hindcast_bench_gpu: backwards on a card, stock and hindcast in turn.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gpu/counted_machine.h"
#include "bench/gpu/counts.h"
#include "bench/gpu/host_times.h"
#include "bench/gpu/measure.h"
#include "bench/gpu/train_steps.h"
#include "codegen/cuda/machine.h"

namespace {

constexpr const char* kUsage =
    "hindcast_bench_gpu [--quick] [--rounds=N] [--device=cpu|none] [--counts[=REGEX]] [Google Benchmark's flags]\n"
    "  --quick        a smoke run: few rounds\n"
    "  --rounds=N     of both engines in turn (15)\n"
    "  --device=cpu   to try this program where there is no card; its numbers mean nothing\n"
    "  --device=none  what the host does for a launch, and for a hit, on a machine without a card\n"
    "  --counts       launches, bytes and registers of each row, without a card: tables in Markdown\n"
    "  --benchmark_filter=REGEX, --benchmark_out=FILE, --benchmark_out_format=json: Google Benchmark's own\n";

struct Flags {
  int rounds = 15;
  c10::Device device = {c10::kCUDA, 0};
  bool no_card = false;
  std::optional<std::string> counts = {};  // of the rows that match
};

/// Takes our flags out of argv, so that Google Benchmark finds only its own.
Flags take_flags(int& argc, char** argv) {
  Flags flags;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--quick") {
      flags.rounds = 2;
    } else if (flag.starts_with("--rounds=") && std::atoi(argv[i] + std::string_view("--rounds=").size()) > 0) {
      flags.rounds = std::atoi(argv[i] + std::string_view("--rounds=").size());
    } else if (flag == "--device=cpu") {
      flags.device = c10::kCPU;
    } else if (flag == "--device=none") {
      flags.no_card = true;
    } else if (flag == "--counts" || flag.starts_with("--counts=")) {
      flags.counts = flag.substr(std::min(flag.size(), std::string_view("--counts=").size()));
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return flags;
}

/// Empty, or why not. Looks for the driver first: LibTorch's part for CUDA takes a second and a gigabyte to load.
std::string load_cuda() {
  for (const char* library : {"libcuda.so.1", "libtorch_cuda.so"}) {
    if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) == nullptr) return dlerror();
  }
  return at::hasCUDA() ? "" : "LibTorch finds no device";
}

/// Counts the launches of hindcast's kernels, once there is a tensor on the card.
void count_launches() {
  std::string why_not;
  if (const auto* const card = hindcast::codegen::cuda::machine(&why_not)) {
    hindcast::bench::gpu::install_counted(*card);
  } else {
    std::fprintf(stderr, "hindcast has no kernels here: %s\n", why_not.c_str());
  }
}

template <class Measure>
void add_row(const std::string& name, const Measure& measure) {
  benchmark::RegisterBenchmark(name.c_str(), measure)->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(1);
}

/// Stock's times over hindcast's.
class Ratios {
 public:
  void add(double ratio) {
    if (ratio > 0) logarithms_ += std::log(ratio), ++count_;
  }
  void print() const {
    if (count_ > 0)
      std::printf("forward and backward of %d rows: %.2f times as fast as eager, as the geometric mean\n", count_,
                  std::exp(logarithms_ / count_));
  }

 private:
  double logarithms_ = 0;
  int count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  namespace gpu = hindcast::bench::gpu;
  try {
    const Flags flags = take_flags(argc, argv);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    if (flags.counts) {
      gpu::print_counts(*flags.counts);
      return 0;
    }
    if (flags.no_card) {
      gpu::register_host_times(flags.rounds);
      benchmark::RunSpecifiedBenchmarks();
      return 0;
    }
    if (flags.device.is_cuda()) {
      if (const std::string why_not = load_cuda(); !why_not.empty()) {
        std::printf("nothing is measured: there is no CUDA device (%s)\n", why_not.c_str());
        return 0;
      }
    }
    const double bandwidth = gpu::copy_bandwidth(flags.device);
    if (flags.device.is_cuda()) count_launches();
    benchmark::AddCustomContext("libtorch", TORCH_VERSION);
    benchmark::AddCustomContext("device", flags.device.str());
    benchmark::AddCustomContext("copy_gb_per_s", std::to_string(bandwidth * 1e-3));
    const auto measure_rows = [&](const std::vector<gpu::Row>& rows) {
      for (const gpu::Row& row : rows) {
        add_row(row.name, [=](benchmark::State& state) { gpu::measure_row(state, row, flags.device, flags.rounds, bandwidth); });
      }
    };
    measure_rows(gpu::rows());
    for (const gpu::Row& row : gpu::launch_bound_rows()) {
      add_row(row.name, [=](benchmark::State& state) { gpu::measure_steps(state, row, flags.device, flags.rounds); });
    }
    measure_rows(gpu::seed_rows());
    Ratios ratios;
    for (const gpu::Row& row : gpu::seed_rows()) {
      add_row("whole/" + row.name,
              [=, &ratios](benchmark::State& state) { ratios.add(gpu::measure_whole(state, row, flags.device, flags.rounds)); });
    }
    for (const std::string& row : gpu::train_rows()) {
      add_row(row, [=](benchmark::State& state) { gpu::measure_train_steps(state, row, flags.device, flags.rounds); });
    }
    if (benchmark::RunSpecifiedBenchmarks() == 0) return 2;
    ratios.print();
    benchmark::Shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hindcast_bench_gpu: %s\n", error.what());
    return 2;
  }
}
