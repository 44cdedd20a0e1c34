// hindcast_bench: every suite, stock and hindcast interleaved in one run. See bench/README.md.

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <benchmark/benchmark.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "bench/memory.h"
#include "bench/pristine.h"
#include "bench/processor.h"
#include "bench/soak.h"
#include "bench/suites.h"

namespace {

using hindcast::bench::Settings;

constexpr const char* kUsage =
    "hindcast_bench [--threads=1,2] [--quick] [--eager] [--report] [Google Benchmark's flags]\n"
    "  --threads=N[,N...]  intra-op threads of LibTorch; each row runs once for each (default 1)\n"
    "  --quick             a smoke run: few samples\n"
    "  --report            hindcast::report() behind each row; with HINDCAST_LOGS=perf also its costliest steps\n"
    "  --eager             replay through ATen, without kernels of hindcast's own\n"
    "  --benchmark_filter=REGEX, --benchmark_list_tests, --benchmark_out=FILE,\n"
    "  --benchmark_out_format=json, --benchmark_repetitions=N: Google Benchmark's own\n"
    "Rows: chain mlp cnn gpt leaves memory seed aot layout step train_step collect hook first guard_off guard leak changing idle soak.\n"
    "python3 bench/table.py FILE prints the JSON as one table.\n";

std::vector<int> parse_threads(std::string_view text) {
  std::vector<int> threads;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string item(rest.substr(0, comma));
    char* end = nullptr;
    const long value = std::strtol(item.c_str(), &end, 10);
    if (item.empty() || *end != '\0' || value < 1 || value > 1024) {
      throw std::invalid_argument("--threads=" + std::string(text) + ": '" + item +
                                  "' is not a thread count from 1 to 1024; write for example --threads=1,2");
    }
    threads.push_back(static_cast<int>(value));
    if (comma == std::string_view::npos) return threads;
    rest.remove_prefix(comma + 1);
  }
}

/// Takes our flags out of argv, so that Google Benchmark finds only its own.
Settings take_settings(int& argc, char** argv) {
  constexpr std::string_view kThreads = "--threads=", kSoak = "--soak=";
  Settings settings;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    } else if (flag == "--quick") {
      settings.quick = true;
      settings.block_us = 500;
    } else if (flag == "--eager") {
      settings.fused = false;
    } else if (flag == "--report") {
      settings.report = true;
    } else if (flag.substr(0, kThreads.size()) == kThreads) {
      settings.threads = parse_threads(flag.substr(kThreads.size()));
    } else if (flag.substr(0, kSoak.size()) == kSoak) {
      settings.soak = flag.substr(kSoak.size());
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return settings;
}

void register_all(const Settings& settings, hindcast::bench::Pristine& pristine) {
  hindcast::bench::register_chains(settings);
  hindcast::bench::register_models(settings);
  hindcast::bench::register_leaves(settings);
  hindcast::bench::register_memory_chain(settings);
  hindcast::bench::register_seeds(settings);
  hindcast::bench::register_aot(settings);
  hindcast::bench::register_layouts(settings);
  hindcast::bench::register_step(settings);
  hindcast::bench::register_patterns(settings);
  hindcast::bench::register_collect(settings);
  hindcast::bench::register_hook_cost(settings);
  hindcast::bench::register_first(settings);
  hindcast::bench::register_guard_off(settings, pristine);
  hindcast::bench::register_leak(settings);
  hindcast::bench::register_changing(settings);
  hindcast::bench::register_idle(settings);
  hindcast::bench::register_soak(settings);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Settings settings = take_settings(argc, argv);
    if (!settings.soak.empty()) return hindcast::bench::run_soak(settings);
    setenv("HINDCAST_COMPILER", "eager", /*overwrite=*/1);  // for rows where kernels make no difference
    hindcast::bench::keep_freed_pages();
    hindcast::bench::install_counting_allocator();
    hindcast::bench::Pristine pristine;  // before anything starts a thread or a guard
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    benchmark::AddCustomContext("libtorch", TORCH_VERSION);
    benchmark::AddCustomContext("processor", hindcast::bench::processor());
    benchmark::AddCustomContext("cpu_capability", at::get_cpu_capability());
    benchmark::AddCustomContext("quick", settings.quick ? "yes" : "no");
    benchmark::AddCustomContext("fused", settings.fused ? "yes" : "no");
    register_all(settings, pristine);
    if (benchmark::RunSpecifiedBenchmarks() == 0) return 2;
    benchmark::Shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hindcast_bench: %s\n", error.what());
    return 2;
  }
}
