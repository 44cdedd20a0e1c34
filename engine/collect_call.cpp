#include "engine/collect_call.h"

#include "base/fork.h"
#include "base/log.h"
#include "capture/recorder/recorder.h"
#include "codegen/kernel/backend.h"
#include "engine/call_state.h"
#include "engine/counters/fallback.h"

#include <ATen/Context.h>

namespace hindcast::engine {
namespace {

capture::DeviceTypes devices_taken() {
  static const capture::DeviceTypes taken = base::first_use([] {
    capture::DeviceTypes types;
    for (const codegen::Backend* backend : codegen::backends()) types.add(backend->device());
    return types;
  });
  return taken;
}

bool leave(FallbackReason reason, const std::exception& error) {
  record_fallback(reason);
  HC_LOG(Fallbacks, Info, "{}", error.what());
  return false;
}

}  // namespace

capture::CollectOptions collect_options(const Options& options) {
  return {.use_visitor = options.collector == Collector::Visitor, .all_opaque = !capture::recorder_available(), .devices = devices_taken()};
}

bool is_to_the_bit(const Options& options) { return options.deterministic || at::globalContext().deterministicAlgorithms(); }

bool collect(const capture::BackwardCall& call, const Options& options, bool to_the_bit, Workspace& work) {
  work.state.clear();
  append_call_state(work.state);
  append_options(work.state, options, to_the_bit);
  cache::append(work.state, call.accumulate_grad);
  try {
    capture::collect(call, collect_options(options), work.state, work.collected);
  } catch (const capture::DeviceNotTaken& error) {
    return leave(FallbackReason::NonCpuDevice, error);
  } catch (const capture::MixedDevices& error) {
    return leave(FallbackReason::MixedDevices, error);
  } catch (const std::exception& error) {
    return leave(FallbackReason::CollectFailed, error);
  }
  return true;
}

}  // namespace hindcast::engine
