#include "engine/train/recorded_step.h"

#include "base/check.h"
#include "base/first_line.h"
#include "base/format.h"
#include "base/log.h"
#include "base/thread_number.h"
#include "capture/graph/shared_memory.h"
#include "codegen/kernel/backend.h"
#include "engine/counters/stats_recorder.h"
#include "engine/cuda_graphs/delivery.h"
#include "engine/cuda_graphs/one_capture.h"
#include "engine/cuda_graphs/order_of_launches.h"
#include "engine/cuda_graphs/regions.h"
#include "engine/optim/changed.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace hindcast::engine {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr uint32_t kStepsBeforeRecording = 3;
constexpr size_t kMostRecorded = 16, kMostWatched = 64;  // kinds of steps
constexpr uint64_t kStepsUntilIdle = 256;                // an idle CUDA graph is evicted for a new one; one in use is not
constexpr uint32_t kMostFailures = 3;

std::vector<const void*> addresses_of(const Tensors& tensors) {
  std::vector<const void*> addresses;
  for (const at::Tensor& tensor : tensors) addresses.push_back(tensor.defined() ? tensor.const_data_ptr() : nullptr);
  return addresses;
}

void set_gradients(const Tensors& parameters, const Tensors& gradients) {
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients.empty() ? at::Tensor() : gradients[i];
}

std::string why_no_place_for(const Tensors& inputs, c10::Device device) {
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) continue;
    if (input.device() != device) return "an argument is on another device than the parameters";
    if (input.requires_grad()) return "an argument requires a gradient";
    if (!can_be_copied_as_it_lies(input)) return "an argument has elements that share memory";
  }
  return {};
}

detail::FunctionCall on(const Tensors& inputs, const detail::FunctionCall& call) {
  return {inputs, call.facts, call.is_static, call.function, call.has_owner};
}

void wait_for_current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  streams.synchronizeStream(streams.getStream(device));
}

}  // namespace

// Holds none of the program's tensors: one that refers to the step would keep itself alive.
struct RecordedSteps::One {
  std::shared_ptr<const codegen::Plan> plan;
  std::vector<int64_t> sizes;
  std::string facts;
  std::vector<const void*> outside;  // addresses of AotHit::outside
  uint32_t steps = 0, thread = 0, failures = 0;
  uint64_t last_run = 0, not_before = 0;  // counts of RecordedSteps::runs_
  bool is_given_up = false;

  Tensors inputs;                 // the batch is copied to these
  detail::FunctionOutput output;  // in the CUDA graph's memory, as are the gradients and the factor
  Tensors gradients;
  detail::StepFactor factor;
  std::unique_ptr<codegen::Recording> recording;  // must outlive the tensors in its memory
  size_t bytes = 0;

  bool is_of(const detail::AotHit& other, const std::string& other_facts) const {
    return plan == other.plan && sizes == other.sizes && facts == other_facts;
  }
};

bool RecordedSteps::shares_results(const One& one, const detail::AotHit& hit) {
  const auto shares = [&](const at::Tensor& result) {
    const auto with = [&](const at::Tensor& other) { return other.defined() && capture::shares_memory(result, other); };
    return result.defined() &&
           (std::any_of(one.inputs.begin(), one.inputs.end(), with) || std::any_of(hit.outside.begin(), hit.outside.end(), with));
  };
  return std::any_of(one.output.tensors.begin(), one.output.tensors.end(), shares);
}

RecordedSteps::RecordedSteps(detail::StepParts& update, size_t most_bytes) : update_(update), most_bytes_(most_bytes) {}
RecordedSteps::~RecordedSteps() { forget(); }

size_t RecordedSteps::bytes() const {
  size_t bytes = 0;
  for (const auto& one : all_) bytes += one->bytes;
  return bytes;
}

void RecordedSteps::forget() {
  for (const auto& one : all_) forget(*one);
  all_.clear();
}

void RecordedSteps::forget(One& one) {
  {
    std::optional<OrderOfLaunches> order;  // after the last launch
    try {
      if (one.factor.norm.defined()) order.emplace(one.factor.norm.device());
    } catch (const std::exception&) {  // the device is lost: whatever uses it next reports that
    }
    update_.let_go(one.factor);
    // This may have copied the norm on the current stream. The graph waits for the stream of its last launch only, and LibTorch unmaps
    // expandable segments without waiting.
    if (order) wait_for_current_stream(one.factor.norm.device());
  }
  one.factor = {};
  one.output = {};
  one.gradients.clear();
  one.inputs.clear();
  one.recording.reset();
  one.bytes = 0;
  one.steps = 0;
}

// Drops the least recently launched CUDA graph if it is idle. Returns false if all are in use.
bool RecordedSteps::drop_idle() {
  const auto last = std::find_if(all_.rbegin(), all_.rend(), [](const auto& one) { return one->recording != nullptr; });
  if (last == all_.rend() || runs_ - (*last)->last_run < kStepsUntilIdle) return false;
  forget(**last);
  return true;
}

bool RecordedSteps::has_room() {
  const auto is_recorded = [](const auto& one) { return one->recording != nullptr; };
  return static_cast<size_t>(std::count_if(all_.begin(), all_.end(), is_recorded)) < kMostRecorded || drop_idle();
}

std::nullopt_t RecordedSteps::give_up(std::string why, const std::string& detail) {
  if (why == why_not_) return std::nullopt;
  why_not_ = std::move(why);
  stats_recorder().add_not_recorded(why_not_);
  HC_LOG(CudaGraphs, Info, "a training step is not recorded: {}{}{}", why_not_, detail.empty() ? "" : ": ", detail);
  return std::nullopt;
}

RecordedSteps::One& RecordedSteps::find_or_watch(const StepByParts& step, const detail::AotHit& hit) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->is_of(hit, step.call.facts); });
  if (found != all_.end()) {
    all_.splice(all_.begin(), all_, found);
    return *all_.front();
  }
  // A program that only this entry still refers to will not run again.
  const auto is_gone = [](const auto& one) { return one->plan.use_count() == 1; };
  for (const auto& one : all_) {
    if (is_gone(one)) forget(*one);
  }
  all_.remove_if(is_gone);
  all_.push_front(std::make_unique<One>());
  all_.front()->facts = step.call.facts;
  all_.front()->plan = hit.plan;
  all_.front()->sizes = hit.sizes;
  if (std::string why = why_not_recorded_plan(*hit.plan, step.trained[0].device()); !why.empty()) {
    all_.front()->is_given_up = true;
    give_up(std::move(why));
  }
  if (all_.size() > kMostWatched) {
    forget(*all_.back());
    all_.pop_back();
  }
  return *all_.front();
}

std::optional<detail::FunctionOutput> RecordedSteps::run(const StepByParts& step) {
  const c10::Device device = step.trained[0].device();
  const codegen::Backend* const backend = codegen::backend_of(device.type());
  if (device.is_cpu() || backend == nullptr) return give_up("its parameters are on a device without graphs");
  if (backend->is_captured(device).value_or(true)) return std::nullopt;
  std::optional<detail::AotHit> hit = step.gradients.find(step.call);
  if (!hit) return std::nullopt;
  if (!hit->why_not_recorded.empty()) return give_up(std::move(hit->why_not_recorded));
  One& one = find_or_watch(step, *hit);
  one.last_run = ++runs_;
  if (one.is_given_up || runs_ < one.not_before) return std::nullopt;
  const std::vector<const void*> outside = addresses_of(hit->outside);
  if (one.outside != outside) {
    forget(one);
    one.outside = outside;
  }
  if (one.recording != nullptr) {
    if (renew_updates(step, one)) return launch(step, one, *hit);
    forget(one);
    return std::nullopt;
  }
  // A thread first runs the step without a CUDA graph: LibTorch's libraries allocate per-thread state at the first call.
  const uint32_t thread = base::number_of_this_thread();
  one.steps = one.thread == thread ? one.steps + 1 : 1;
  one.thread = thread;
  if (one.steps <= kStepsBeforeRecording || backend->compiles_for_calls()) return std::nullopt;
  // State created during the capture would be in the CUDA graph's memory, and reset by each launch.
  if (update_.makes_state(step.updated(*hit)))
    return give_up("a parameter has no optimizer state yet, or kernels do not know the optimizer's class, a setting, or a hook of it");
  if (!has_room()) return give_up(base::format("{} kinds of steps have a graph already, and all are in use", kMostRecorded));
  if (!record(step, one, *hit)) return std::nullopt;
  return launch(step, one, *hit);
}

bool RecordedSteps::record(const StepByParts& step, One& one, const detail::AotHit& hit) {
  const c10::Device device = step.trained[0].device();
  const codegen::Backend& backend = *codegen::backend_of(device.type());
  std::string why = backend.why_not_recorded(device), detail;
  if (why.empty()) why = why_no_place_for(step.call.inputs, device);
  if (why.empty()) {
    for (const at::Tensor& input : step.call.inputs) one.inputs.push_back(input.defined() ? like(input) : input);
    const auto of_copies = step.gradients.find(on(one.inputs, step.call));
    if (!of_copies || !one.is_of(*of_copies, step.call.facts)) why = "copies of its arguments would run another program";
  }
  if (why.empty()) {
    if (!capture(step, one, backend)) return false;
    one.bytes = one.recording->bytes();
    for (const at::Tensor& input : one.inputs) one.bytes += input.defined() ? input.storage().nbytes() : 0;
    while (bytes() > most_bytes_ && drop_idle()) {
    }
    if (bytes() > most_bytes_) {
      why = "TrainStepOptions::cuda_graph_bytes has no room for it";
      detail = base::format("{} bytes", one.bytes);
    }
    if (shares_results(one, hit)) why = "a result shares memory with an argument or a parameter";
    if (!why.empty()) update_.take_back();
    set_gradients(step.trained, {});
  }
  if (!why.empty()) {
    const bool others_leave_no_room = one.bytes > 0 && one.bytes <= most_bytes_ && bytes() > most_bytes_;
    forget(one);
    one.is_given_up = !others_leave_no_room;
    one.not_before = runs_ + kStepsUntilIdle;
    give_up(std::move(why), detail);
    return false;
  }
  stats_recorder().add_recording();
  HC_LOG(CudaGraphs, Info, "a training step is recorded: {} bytes of memory", one.bytes);
  return true;
}

// Returns true if one step was counted, with its gradients in `.grad()`; false if nothing has changed.
bool RecordedSteps::capture(const StepByParts& step, One& one, const codegen::Backend& backend) {
  const uint64_t originally = update_.original();
  const uint64_t compiled = update_.compiled();
  const auto take_back = [&] {
    if (update_.compiled() != compiled) update_.take_back();
    set_gradients(step.trained, {});
  };
  try {
    const auto alone = one_capture();
    one.recording = backend.record(step.trained[0].device(), [&] {
      try {
        one.output = step.run(on(one.inputs, step.call));
        for (const at::Tensor& parameter : step.trained) one.gradients.push_back(parameter.grad());
        one.factor = update_.factor();
        if (update_.original() != originally) HC_UNSUPPORTED("the optimizer's own code updates a parameter");
      } catch (...) {
        take_back();
        forget(one);  // before the memory that its tensors are in
        throw;
      }
    });
    return true;
  } catch (const std::exception& error) {
    take_back();
    forget(one);
    if (++one.failures == kMostFailures) one.is_given_up = true;
    give_up("it cannot be captured", base::first_line(error));
    return false;
  }
}

// Does the host's part of the updates: step counts, versions, scalars. Returns false if nothing has changed.
bool RecordedSteps::renew_updates(const StepByParts& step, One& one) {
  set_gradients(step.trained, one.gradients);
  bool fits = update_.gather(one.factor), ran = true;
  if (fits && (!one.recording->replace_sets([&] { ran = update_.run(); }) || !ran)) {
    update_.take_back();
    fits = false;
  }
  set_gradients(step.trained, {});
  return fits;
}

detail::FunctionOutput RecordedSteps::launch(const StepByParts& step, One& one, const detail::AotHit& hit) {
  const at::NoGradGuard no_grad;
  const c10::Device device = step.trained[0].device();
  const OrderOfLaunches order(device);
  const c10::impl::VirtualGuardImpl streams(device.type());
  Tensors to, from;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    if (!one.inputs[i].defined()) continue;
    streams.recordDataPtrOnStream(one.inputs[i].storage().data_ptr(),
                                  streams.getStream(device));  // it may be freed before the launch is done
    to.push_back(without_repeats(one.inputs[i]));
    from.push_back(without_repeats(step.call.inputs[i]));
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  one.recording->launch();
  step.gradients.note_launch();
  for (const at::Tensor& tensor : hit.written) has_changed(tensor);
  ++launches_;
  stats_recorder().add_recording_launch();
  detail::FunctionOutput output{{}, one.output.shape, one.output.facts};
  for (const at::Tensor& result : one.output.tensors) output.tensors.push_back(result.defined() ? result.clone() : result);
  return output;
}

}  // namespace hindcast::engine
