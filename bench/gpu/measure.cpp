#include "bench/gpu/measure.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "bench/summary.h"
#include "engine/hindcast.h"

namespace hindcast::bench::gpu {
namespace {

using at::Tensor;
using Clock = std::chrono::steady_clock;

constexpr double kLargerThanCaches = 256 << 20;
constexpr int kMostCopies = 64;

double microseconds_since(Clock::time_point start) { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }

void wait_for(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

/// A moment on the stream; where the device is the CPU, to try this program, on the host.
class Moment {
 public:
  explicit Moment(c10::Device device) {
    if (device.is_cuda()) event_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  }
  void record(c10::Device device) {
    if (event_) event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    time_ = Clock::now();
  }
  double microseconds_until(const Moment& later) const {
    if (event_) return 1e3 * event_->elapsedTime(*later.event_);
    return std::chrono::duration<double, std::micro>(later.time_ - time_).count();
  }

 private:
  std::optional<c10::Event> event_;
  Clock::time_point time_;
};

struct Lane {
  std::optional<Options> options;
  std::vector<double> device_us, host_us = {};
};

template <class Call>
auto under_engine(const Lane& lane, const Call& call) {
  if (!lane.options) return call();
  const auto guard = enable(*lane.options);
  return call();
}

void run_round(Lane& lane, const std::vector<Workload>& copies, c10::Device device) {
  std::vector<Tensor> roots;
  std::vector<Moment> begins, ends;
  for (const Workload& work : copies) {
    work.clear_grads();
    begins.emplace_back(device);
    ends.emplace_back(device);
    roots.push_back(work.forward());
  }
  wait_for(device);
  under_engine(lane, [&] {
    for (size_t i = 0; i < copies.size(); ++i) {
      begins[i].record(device);
      const Clock::time_point start = Clock::now();
      roots[i].backward(copies[i].incoming);
      lane.host_us.push_back(microseconds_since(start));
      ends[i].record(device);
    }
  });
  wait_for(device);
  for (size_t i = 0; i < copies.size(); ++i) lane.device_us.push_back(begins[i].microseconds_until(ends[i]));
}

std::vector<Tensor> gradients(const Lane& lane, const Workload& work) {
  at::manual_seed(7);  // dropout must draw the same masks in both engines
  work.clear_grads();
  const Tensor root = work.forward();
  under_engine(lane, [&] { root.backward(work.incoming); });
  std::vector<Tensor> all;
  for (const Tensor& leaf : work.leaves) all.push_back(leaf.grad().to(at::kDouble));
  return all;
}

/// Empty where hindcast's gradients are the stock engine's but for rounding, on a miss and on hits. Exact equality is the tests' business.
std::string differing_gradients(const Lane& stock, const Lane& ours, const Workload& work) {
  const std::vector<Tensor> expected = gradients(stock, work);
  const double most = work.leaves.front().element_size() == 2 ? 1e-2 : 1e-5;
  for (int call = 1; call <= 3; ++call) {
    const std::vector<Tensor> seen = gradients(ours, work);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = (seen[i] - expected[i]).norm().item<double>() / std::max(expected[i].norm().item<double>(), 1e-30);
      if (!(error <= most))
        return "gradient of leaf " + std::to_string(i) + " in hindcast's backward " + std::to_string(call) + " is wrong by " +
               std::to_string(error) + ": nothing was timed; run the tests";
    }
  }
  return {};
}

}  // namespace

double copy_bandwidth(c10::Device device) {
  constexpr int64_t kFloats = int64_t{64} << 20;
  const Tensor from = at::ones({device.is_cuda() ? 4 * kFloats : kFloats / 8}, device), to = at::empty_like(from);
  std::vector<double> us;
  for (int i = 0; i < 12; ++i) {
    Moment begin(device), end(device);
    begin.record(device);
    to.copy_(from);
    end.record(device);
    wait_for(device);
    if (i >= 2) us.push_back(begin.microseconds_until(end));
  }
  return 2 * static_cast<double>(from.nbytes()) / summarize(us).median;
}

void measure_steps(benchmark::State& state, const Row& row, c10::Device device, int rounds) {
  constexpr int kSteps = 20;  // of each lane in a round
  reset();
  at::manual_seed(1);
  const Workload work = row.build({device});
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  Lane stock{std::nullopt, {}}, kernels{options, {}};
  options.cuda_graphs = true;
  Lane graphs{options, {}};
  for (const Lane* ours : {&kernels, &graphs}) {
    if (const std::string error = differing_gradients(stock, *ours, work); !error.empty()) {
      state.SkipWithError(error.c_str());
      return;
    }
  }
  const auto run_steps = [&](Lane& lane) {
    for (int i = 0; i < kSteps; ++i) {
      work.clear_grads();
      const Tensor root = work.forward();
      wait_for(device);
      const Clock::time_point start = Clock::now();
      under_engine(lane, [&] { root.backward(work.incoming); });
      lane.host_us.push_back(microseconds_since(start));
      wait_for(device);
      lane.device_us.push_back(microseconds_since(start));
    }
  };
  for (Lane* lane : {&stock, &kernels, &graphs}) {  // warm up
    run_steps(*lane);
    *lane = {lane->options, {}};
  }
  const Stats before = stats();
  for (auto _ : state) {
    for (int round = 0; round < rounds; ++round) {
      for (Lane* lane : {&stock, &kernels, &graphs}) run_steps(*lane);
    }
    state.SetIterationTime(1e-6 * summarize(graphs.device_us).median);
  }
  const Stats after = stats();
  auto& counters = state.counters;
  counters["stock_us"] = summarize(stock.device_us).median;
  counters["stock_iqr_us"] = summarize(stock.device_us).iqr();
  counters["hindcast_us"] = summarize(kernels.device_us).median;
  counters["graphs_us"] = summarize(graphs.device_us).median;
  counters["graphs_iqr_us"] = summarize(graphs.device_us).iqr();
  counters["graphs_host_us"] = summarize(graphs.host_us).median;
  counters["ratio"] = summarize(stock.device_us).median / summarize(kernels.device_us).median;
  counters["graphs_ratio"] = summarize(stock.device_us).median / summarize(graphs.device_us).median;
  counters["graph_bytes"] = static_cast<double>(after.cuda_graph_bytes);
  counters["graph_share"] = static_cast<double>(after.cuda_graph_launches - before.cuda_graph_launches) / (kSteps * rounds);
}

void measure_row(benchmark::State& state, const Row& row, c10::Device device, int rounds, double bandwidth) {
  reset();
  at::manual_seed(1);
  std::vector<Workload> copies = {row.build({device})};
  const double bytes = copies.front().floor_bytes;
  const int count = std::clamp(static_cast<int>(std::ceil(kLargerThanCaches / bytes)), 4, kMostCopies);
  while (static_cast<int>(copies.size()) < count) copies.push_back(row.build({device}));

  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  Lane stock{std::nullopt, {}}, ours{options, {}};
  if (const std::string error = differing_gradients(stock, ours, copies.front()); !error.empty()) {
    state.SkipWithError(error.c_str());
    return;
  }
  for (Lane* lane : {&stock, &ours}) {  // warm up
    run_round(*lane, copies, device);
    *lane = {lane->options, {}};
  }
  const Stats before = stats();
  for (auto _ : state) {
    for (int round = 0; round < rounds; ++round) {
      run_round(round % 2 == 0 ? stock : ours, copies, device);
      run_round(round % 2 == 0 ? ours : stock, copies, device);
    }
    state.SetIterationTime(1e-6 * summarize(ours.device_us).median);
  }
  const Stats after = stats();
  auto& counters = state.counters;
  const double us = summarize(ours.device_us).median, floor_us = bytes / bandwidth;
  counters["stock_us"] = summarize(stock.device_us).median;
  counters["stock_iqr_us"] = summarize(stock.device_us).iqr();
  counters["hindcast_us"] = us;
  counters["hindcast_iqr_us"] = summarize(ours.device_us).iqr();
  counters["stock_host_us"] = summarize(stock.host_us).median;
  counters["hindcast_host_us"] = summarize(ours.host_us).median;
  counters["ratio"] = summarize(stock.device_us).median / us;
  counters["floor_us"] = floor_us;
  counters["floor_share"] = floor_us / us;
  counters["hit_share"] = static_cast<double>(after.hits - before.hits) / (static_cast<double>(copies.size()) * rounds);
}

}  // namespace hindcast::bench::gpu
