#include "bench/gpu/asked.h"

#include <ATen/core/Tensor.h>

#include "bench/gpu/counted_machine.h"
#include "bench/gpu/device_memory.h"
#include "bench/gpu/moment.h"

namespace hindcast::bench::gpu {
namespace {

constexpr double kUsANode = 0.5, kUsAKernel = 4;
constexpr int kRepeats = 7;

Asked asked_once(const Lane& lane, const Workload& work, c10::Device device, int64_t base_bytes) {
  work.clear_grads();
  const at::Tensor root = work.forward();
  wait_for(device);
  restart_peak(device);
  const Stats before = stats();
  const int64_t kernels = launched_kernels();
  Asked asked;
  under_engine(lane, [&] {
    const AtenCalls calls;
    root.backward(work.incoming);
    asked.calls = calls.by_name();
  });
  asked.kernels = launched_kernels() - kernels;
  asked.nodes = static_cast<int64_t>(stats().nodes - before.nodes);
  asked.peak_bytes = peak_bytes(device) - base_bytes;
  wait_for(device);
  return asked;
}

}  // namespace

int64_t Asked::count() const {
  int64_t count = 0;
  for (const auto& [name, one] : calls) count += one.count;
  return count;
}

double Asked::us() const {
  double us = 0;
  for (const auto& [name, one] : calls) us += one.us;
  return us;
}

// The quickest of some: an interrupted call is no measure of its cost.
Asked asked_by(const Lane& lane, const Workload& work, c10::Device device, int64_t base_bytes) {
  Asked best = asked_once(lane, work, device, base_bytes);
  for (int repeat = 1; repeat < kRepeats; ++repeat) {
    Asked next = asked_once(lane, work, device, base_bytes);
    if (next.us() < best.us()) best = std::move(next);
  }
  work.clear_grads();
  return best;
}

double host_bound_us(const Asked& stock, const Asked& ours) {
  double us = kUsANode * static_cast<double>(ours.nodes) + kUsAKernel * static_cast<double>(ours.kernels);
  for (const auto& [name, calls] : ours.calls) {
    const auto found = stock.calls.find(name);
    const OperatorCalls& measure = found == stock.calls.end() ? calls : found->second;
    us += static_cast<double>(calls.count) * measure.us / static_cast<double>(measure.count);
  }
  return us;
}

void report_asked(benchmark::State& state, const Asked& stock, const Asked& ours, double host_us) {
  auto& counters = state.counters;
  counters["nodes"] = static_cast<double>(ours.nodes);
  counters["kernels"] = static_cast<double>(ours.kernels);
  counters["calls_left"] = static_cast<double>(ours.count());
  counters["stock_launches"] = static_cast<double>(stock.launches());
  counters["launches"] = static_cast<double>(ours.launches());
  counters["library_us"] = ours.us();
  const double bound = host_bound_us(stock, ours);
  counters["host_bound_us"] = bound;
  counters["host_of_bound"] = host_us / bound;
  if (stock.peak_bytes <= 0) return;  // nobody counts
  constexpr double kMiB = 1 << 20;
  counters["stock_peak_mib"] = static_cast<double>(stock.peak_bytes) / kMiB;
  counters["peak_mib"] = static_cast<double>(ours.peak_bytes) / kMiB;
}

double ns_a_node(const Stats& before, const Stats& after) {
  const uint64_t nodes = after.nodes - before.nodes;
  return nodes == 0 ? 0 : 1e3 * (after.collect_us - before.collect_us) / static_cast<double>(nodes);
}

}  // namespace hindcast::bench::gpu
