#include "engine/collect_call.h"

#include "base/first_line.h"
#include "base/log.h"
#include "capture/recorder/recorder.h"
#include "engine/call_state.h"
#include "engine/counters/fallback.h"

#include <ATen/Context.h>

#include <atomic>

namespace hindcast::engine {
namespace {

std::atomic<c10::DeviceType> device_of_tests = c10::kCPU;

// Accepted devices besides the CPU. On those without a backend, ATen computes everything.
capture::DeviceTypes devices_taken() {
  capture::DeviceTypes types;
  types.add(c10::kCUDA);
  types.add(device_of_tests.load(std::memory_order_relaxed));
  return types;
}

bool leave(FallbackReason reason, const std::exception& error) {
  record_fallback(reason);
  HC_LOG(Fallbacks, Info, "{}", base::first_line(error));
  return false;
}

}  // namespace

capture::CollectOptions collect_options(const Options& options) {
  return {.use_visitor = options.collector == Collector::Visitor,
          .all_opaque = !capture::recorder_available(),
          .devices = devices_taken(),
          .accelerator_state = accelerator_state};
}

void take_device_of_tests(c10::DeviceType device) { device_of_tests.store(device); }

bool wants_equal_bits(const Options& options) { return options.deterministic || at::globalContext().deterministicAlgorithms(); }

bool collect(const capture::BackwardCall& call, const Options& options, bool bitwise, Workspace& work, bool with_history) {
  work.state.clear();
  append_call_state(work.state);
  append_options(work.state, options, bitwise);
  cache::append(work.state, call.accumulate_grad);
  capture::CollectOptions how = collect_options(options);
  how.with_history = with_history;
  try {
    capture::collect(call, how, work.state, work.collected);
  } catch (const capture::DeviceNotTaken& error) {
    return leave(FallbackReason::OtherDevice, error);
  } catch (const std::exception& error) {
    return leave(FallbackReason::CollectFailed, error);
  }
  return true;
}

}  // namespace hindcast::engine
