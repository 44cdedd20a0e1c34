#include "bench/plan_floor.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "bench/summary.h"
#include "codegen/kernel/backend.h"
#include "engine/diagnosis/step_times.h"

namespace hindcast::bench {
namespace {

constexpr int kBlocks = 7, kSteps = 5;
constexpr size_t kAllSteps = std::numeric_limits<size_t>::max();

bool is_product(std::string_view name) {
  constexpr auto kProducts = std::to_array<std::string_view>({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv",
                                                              "aten::addmv", "aten::convolution", "aten::convolution_backward"});
  return std::find(kProducts.begin(), kProducts.end(), name) != kProducts.end() || name.find("scaled_dot_product") != name.npos;
}

// While it lives, steps are timed. Nothing is written.
class Timed {
 public:
  Timed()
      : former_(base::log_thresholds()),
        former_output_(base::exchange_log_output(base::callback_log_output([](std::string_view /*lines*/) {}))) {
    auto thresholds = former_;
    thresholds[static_cast<size_t>(base::Channel::Perf)] = base::Level::Info;
    base::set_log_thresholds(thresholds);
  }
  ~Timed() {
    base::set_log_thresholds(former_);
    base::exchange_log_output(std::move(former_output_));
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  const base::LogThresholds former_;
  base::LogOutput former_output_;
};

}  // namespace

void report_floor(benchmark::State& state, const std::function<void()>& step, double us, double more_bytes) {
  const Timed timed;
  std::vector<double> products, bytes;
  for (int block = 0; block < kBlocks; ++block) {
    engine::reset_step_times();
    for (int i = 0; i < kSteps; ++i) step();
    double of_products = 0, of_bytes = 0;
    for (const engine::StepTime& time : engine::costliest_steps(kAllSteps)) {
      if (is_product(time.name)) {
        of_products += time.us;
      } else {
        of_bytes += time.bytes;
      }
    }
    products.push_back(of_products / kSteps);
    bytes.push_back(of_bytes / kSteps);
  }
  engine::reset_step_times();
  const double rest_us = (summarize(bytes).median + more_bytes) / codegen::backend_of(c10::kCPU)->copy_bandwidth();
  const double floor_us = summarize(products).median + rest_us;
  state.counters["products_us"] = summarize(products).median;
  state.counters["model_floor_us"] = floor_us;
  state.counters["model_floor_share"] = floor_us / us;
}

}  // namespace hindcast::bench
