// A thousand hits must leave nothing behind: `live_bytes` is the exact change of live tensor
// bytes, `heap_bytes` that of all of malloc's (LibTorch's own pools and the allocator's caches
// move it a little: `stock_heap_bytes` is the same number for the stock engine).

#include "bench/harness.h"
#include "bench/memory.h"
#include "bench/suites.h"

namespace hindcast::bench {
namespace {

struct Growth {
  int64_t live;
  int64_t heap;
  uint64_t hits;
};

Growth growth(const Lane& lane, int backwards, double& total_us) {
  for (int i = 0; i < 50; ++i) time_backward(lane);
  lane.work->clear_grads();
  const Growth before{live_bytes(), heap_bytes(), stats().hits};
  for (int i = 0; i < backwards; ++i) total_us += time_backward(lane);
  lane.work->clear_grads();
  return {live_bytes() - before.live, heap_bytes() - before.heap, stats().hits - before.hits};
}

void measure(benchmark::State& state, const Build& build, int backwards) {
  reset();
  const Workload work = build();
  const Lane stock{&work, std::nullopt};
  const Lane ours{&work, Options()};
  double stock_us = 0;
  const Growth stock_growth = growth(stock, backwards, stock_us);
  for (auto _ : state) {
    double us = 0;
    const Growth our_growth = growth(ours, backwards, us);
    state.counters["backwards"] = backwards;
    state.counters["hits"] = static_cast<double>(our_growth.hits);
    state.counters["live_bytes"] = static_cast<double>(our_growth.live);
    state.counters["heap_bytes"] = static_cast<double>(our_growth.heap);
    state.counters["stock_live_bytes"] = static_cast<double>(stock_growth.live);
    state.counters["stock_heap_bytes"] = static_cast<double>(stock_growth.heap);
    state.SetIterationTime(us * 1e-6);
  }
}

}  // namespace

void register_leak(const Settings& settings) {
  const int backwards = settings.quick ? 100 : 1000;
  const auto row = [&](const std::string& name, const Build& build) {
    register_row(settings, "leak/" + name, 1, [build, backwards](benchmark::State& state) { measure(state, build, backwards); });
  };
  row("chain/mixed/100", [] { return mixed_chain(100); });
  row("hook/100", [] { return hooked(mixed_chain(100)); });
  row("mlp/64-128-64/b32", [] { return mlp({64, 128, 64}, 32); });
  row("cnn/8x8/b8", [] { return resnet(8, 1, 8, 8); });
}

}  // namespace hindcast::bench
