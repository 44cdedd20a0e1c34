#include "hindcast/detail/aot_core.h"

#include "base/format.h"
#include "base/log.h"
#include "base/thread_end.h"
#include "cache/graph_cache.h"
#include "capture/backward/facts.h"
#include "capture/recorder/recorder.h"
#include "codegen/kernel/backend.h"
#include "engine/aot/aot_call.h"
#include "engine/aot/drawn_again.h"
#include "engine/aot/family.h"
#include "engine/aot/repeated_inputs.h"
#include "engine/aot/time_backward.h"
#include "engine/aot/warn_once.h"
#include "engine/aot/windows.h"
#include "engine/call_state.h"
#include "engine/counters/stats_recorder.h"
#include "engine/cuda_graphs/regions.h"
#include "engine/diagnosis/log_setup.h"
#include "engine/options/use_options.h"
#include "hooks/saved_tensor_hooks.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <utility>

namespace hindcast::engine {
namespace {

void check(const AotOptions& options) {
  if (!(options.memory_budget >= 0 && options.memory_budget <= 1)) {
    throw std::invalid_argument(base::format("hindcast::AotOptions: memory_budget is {}, expected 0 to 1", options.memory_budget));
  }
  if (!options.partition) throw std::invalid_argument("hindcast::AotOptions: partition is empty, expected partition::standard or another");
  if (options.limit == 0) throw std::invalid_argument("hindcast::AotOptions: limit is 0, expected 1 or more");
}

// Everything that a program depends on, except its tensors. `firsts`: find_repeated() of these.
cache::KeyBytes key_of(const detail::FunctionCall& call, const std::vector<uint32_t>& firsts) {
  cache::KeyBytes key;
  append_call_state(key);
  if (const auto accelerator = at::accelerator::getAccelerator()) cache::append(key, accelerator_state(*accelerator));
  cache::append(key, c10::GradMode::is_enabled());
  cache::append(key, c10::InferenceMode::is_enabled());
  cache::append(key, asks_for_equal_bits());
  cache::append(key, at::SavedTensorDefaultHooks::is_enabled());  // a checkpoint inside raises if they are disabled
  cache::append_size(key, call.inputs.size());
  cache::append_size(key, firsts.size());
  for (const uint32_t first : firsts) cache::append(key, first);
  cache::append_bytes(key, call.facts.data(), call.facts.size());
  return key;
}

// Leaves the first of each tensor.
std::vector<at::Tensor> distinct(std::vector<at::Tensor> inputs, const std::vector<uint32_t>& firsts) {
  for (size_t i = 0; i < firsts.size(); ++i) {
    if (firsts[i] != i) inputs[i] = at::Tensor();
  }
  return inputs;
}

// Why the call must run eagerly; nullptr if it need not.
const char* why_eager(const detail::FunctionCall& call) {
  if (base::thread_has_ended()) return "the process exits";
  if (capture::Recorder::current() != nullptr) return "it is called while something else is being recorded";
  if (const auto* saved = hooks::current_saved_tensor_hooks(); saved != nullptr && saved->must_repeat()) {
    return "it is called in a checkpoint, where it has to save the same in the recomputation, whatever was compiled meanwhile";
  }
  if (!capture::recorder_available()) return "the recorder has no dispatch key in this process";
  if (disabled_by_environment()) return "HINDCAST_DISABLE is set";
  if (torch::autograd::AnomalyMode::is_enabled()) return "anomaly mode is on";
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr) return "a forward-mode level is open";
  if (!has_usual_dispatch_state()) return "the thread has an unusual dispatch state: a functorch level or a dispatch mode";
  for (const at::Tensor& input : call.inputs) {
    if (!input.defined()) continue;
    if (!capture::is_plain(input)) return "an input is not a plain strided tensor";
    if (codegen::backend_of(input.device().type()) == nullptr) return "an input is on a device that hindcast does not support";
    if (input.is_inference() && !c10::InferenceMode::is_enabled()) return "an input is an inference tensor";
  }
  return nullptr;
}

}  // namespace
}  // namespace hindcast::engine

namespace hindcast::detail {

using namespace engine;

class AotCore::Implementation {
 public:
  explicit Implementation(AotOptions options) : context_(std::make_shared<AotContext>()) {
    check(options);
    context_->options = std::move(options);
  }

  FunctionOutput call(const FunctionCall& call) {
    FunctionOutput output = look(call);
    output.next = looked(output.gain, output.program);
    return output;
  }

  std::optional<AotHit> find(const FunctionCall& call) const {
    if (why_eager(call) != nullptr) return std::nullopt;
    const std::vector<uint32_t> firsts = find_repeated(call.inputs);
    const std::vector<at::Tensor> inputs = distinct(call.inputs, firsts);
    const cache::KeyBytes key = key_of(call, firsts);
    const std::shared_ptr<Family> family = families_.find(cache::view_of(key));
    if (family == nullptr || family->is_eager()) return std::nullopt;
    const auto known = family->all();
    capture::Bindings bindings;
    const auto* specialisation = find_match(*known, inputs, InputFacts(inputs), bindings);
    if (specialisation == nullptr || (*specialisation)->is_eager()) return std::nullopt;
    const auto pair = (*specialisation)->programs().next();
    if (pair == nullptr) return std::nullopt;
    std::vector<at::Tensor> outside = (*specialisation)->find_lifted(), written;
    for (const capture::Result& result : (*specialisation)->results()) {
      if (result.written && !(*specialisation)->is_input(*result.written))
        written.push_back(outside.at(*result.written - call.inputs.size()));
    }
    std::vector<bool> defined;
    for (const capture::Returned& returned : (*specialisation)->returned()) {
      defined.push_back(returned.same_as ? defined[*returned.same_as] : returned.from != capture::Returned::From::Nothing);
    }
    return AotHit{pair->forward->plan(), std::move(bindings.ints), std::move(outside),
                  std::move(written),    std::move(defined),       why_not_recorded(**specialisation, *pair, inputs)};
  }
  void note_launch() { context_->counts.launches.fetch_add(1, std::memory_order_relaxed); }
  NextCalls looked(Gain gain, const void* program) {
    tell_left();
    return backs_off() ? now(context_->back_off.looked(gain, program)) : 0;
  }
  NextCalls threw() {
    tell_left();
    return backs_off() ? now(context_->back_off.threw()) : 0;
  }
  void lookup_is_costly() { context_->has_costly_lookup = true; }
  void time_backward(const std::vector<at::Tensor>& results) const { engine::time_backward(context_, results); }
  NextCalls took(uint64_t whole_ns, uint64_t own_ns) { return now(context_->back_off.took(whole_ns, own_ns)); }

  AotStats stats() const {
    const AotCounts& counts = context_->counts;
    return {.calls = counts.calls,
            .hits = counts.hits,
            .traces = counts.traces,
            .eager = counts.eager,
            .backwards = counts.backwards,
            .numbers_differed = counts.numbers_differed};
  }

  std::vector<AotPrograms> programs() const {
    std::vector<std::shared_ptr<const ProgramPair>> all;
    for (const auto& family : families_.entries()) {
      const auto known = family->all();
      for (const auto& specialisation : *known) {
        for (auto& pair : specialisation->programs().all()) {
          const bool is_for_others = pair->backward == nullptr && specialisation->has_gradients();
          if (!is_for_others) all.push_back(std::move(pair));
        }
      }
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->number > b->number; });
    std::vector<AotPrograms> programs;
    for (const auto& pair : all) programs.push_back(programs_of(*pair));
    return programs;
  }

  void forget(const std::string& facts) {
    families_.erase_if([&](const Family& family) { return family.facts() == facts; });
  }

  void reset() {
    families_.clear();
    context_->kept_tensors = 0;
    context_->keeps_tensors_in_losses = false;
    context_->back_off.looked(Gain::Some, nullptr);
  }

 private:
  bool backs_off() const {
    const AotOptions& options = context_->options;
    return options.back_off && may_back_off() && options.fallback && options.check_every == 0;
  }

  std::string why_not_recorded(const Specialisation& known, const ProgramPair& pair, const std::vector<at::Tensor>& inputs) const {
    if (context_->options.check_every != 0) return "AotOptions::check_every is set";
    if (known.takes_gradients() &&
        std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) { return input.defined() && input.requires_grad(); }))
      return "it takes gradients of its arguments";
    if (known.has_gradients()) return "its results have a history";
    if (known.draws_random_numbers()) return "it draws random numbers";
    if (!known.numbers().empty()) return "the host reads a number of it";
    if (known.has_data_sizes()) return "the host reads a size of it that depends on data";
    if (!pair.forward->has_plan()) return "a compiler of the user's made its program";
    for (const capture::Result& result : known.results()) {
      if (result.written && known.is_input(*result.written)) return "it writes to an argument";
    }
    return {};
  }

  static const std::shared_ptr<Specialisation>* find_match(const Family::List& known, const std::vector<at::Tensor>& inputs,
                                                           const InputFacts& facts, capture::Bindings& bindings) {
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const auto& one) { return one->have_same_offsets(inputs) && one->matches(facts.row, bindings); });
    return found == known.end() ? nullptr : &*found;
  }

  FunctionOutput look(const FunctionCall& call) {
    context_->counts.calls.fetch_add(1, std::memory_order_relaxed);
    if (!call.why_eager.empty()) {
      if (!context_->options.fallback) throw std::runtime_error(base::format("hindcast: {}", call.why_eager));
      stats_recorder().add_eager_function(call.why_eager);
      warn_once(std::string(call.why_eager));
      return run_eagerly(*context_, call);
    }
    if (const char* why = why_eager(call)) {
      stats_recorder().add_eager_function(why);
      HC_LOG(Aot, Info, "a function runs eagerly: {}", why);
      return run_eagerly(*context_, call);
    }
    const std::vector<uint32_t> firsts = find_repeated(call.inputs);
    if (firsts.empty()) return look_at(call, firsts);
    const auto with_all = [&](const std::vector<at::Tensor>& inputs) {
      std::vector<at::Tensor> all;
      for (const uint32_t first : firsts) all.push_back(inputs[first]);
      return call.function(all);
    };
    FunctionCall of_distinct = call;
    of_distinct.inputs = distinct(call.inputs, firsts);
    of_distinct.function = with_all;
    return look_at(of_distinct, firsts);
  }

  FunctionOutput look_at(const FunctionCall& call, const std::vector<uint32_t>& firsts) {
    const cache::KeyBytes key = key_of(call, firsts);
    const InputFacts facts(call.inputs);
    AotCall work(context_, call);
    const std::shared_ptr<Family> family = family_of(cache::view_of(key), call.facts);
    if (family->is_eager()) return run_eagerly(*context_, call);
    Asked asked;
    if (auto output = run_known(work, *family, call.inputs, facts, asked)) return std::move(*output);
    if (!asked.missed.empty()) {
      context_->counts.numbers_differed.fetch_add(1, std::memory_order_relaxed);
      if (!family->may_trace_for_data_sizes()) return run_for_other_sizes(call, *family, asked);
    }
    if (const size_t programs = family->programs(); programs >= context_->options.limit) {
      HC_LOG(Aot, Info, "a function runs eagerly: it has {} programs already, AotOptions::limit", programs);
      return run_eagerly(*context_, call);
    }
    if (!pays()) return run_eagerly(*context_, call);
    if (!call.only_reads && !family->reads_windows() && are_windows(call.inputs)) return run_on_windows(call, *family);
    return work.trace_new(*family);
  }

  struct Asked {
    std::vector<std::shared_ptr<Specialisation>> missed;  // those that did not hold for a data-dependent size
  };

  // Returns nullopt if no specialisation holds for the call.
  static std::optional<FunctionOutput> run_known(AotCall& work, Family& family, const std::vector<at::Tensor>& inputs,
                                                 const InputFacts& facts, Asked& asked) {
    const auto known = family.all();
    std::pair<std::shared_ptr<Specialisation>, capture::Bindings> waiting;  // tried last, after those with other data-dependent sizes
    for (const auto& one : *known) {
      capture::Bindings bindings;
      if (!one->have_same_offsets(inputs) || !one->matches(facts.row, bindings)) continue;
      if (one->has_data_sizes() && one->waits()) {
        if (!waiting.first) waiting = {one, std::move(bindings)};
        continue;
      }
      if (auto output = work.run(one, std::move(bindings))) {
        if (!asked.missed.empty()) family.note_late_find(one);
        return output;
      }
      asked.missed.push_back(one);
    }
    if (!waiting.first) return std::nullopt;
    return work.run(waiting.first, std::move(waiting.second));
  }

  // The first such call runs eagerly. If it does not write to its arguments, later calls are traced.
  FunctionOutput run_on_windows(const FunctionCall& call, Family& family) {
    const std::vector<int64_t> before = versions_of(call.inputs);
    FunctionOutput output = run_eagerly(*context_, call);
    if (versions_of(call.inputs) == before) {
      family.read_windows();
    } else {
      note_eager_call("it writes to an argument that overlaps another one, and both are views of one tensor");
    }
    return output;
  }

  FunctionOutput run_for_other_sizes(const FunctionCall& call, Family& family, const Asked& asked) {
    if (family.with_other_data_sizes().add()) {
      for (const auto& one : asked.missed) one->give_up();
      note_eager("a size that depends on its data differs from call to call");
    }
    return run_eagerly(*context_, call);
  }

  // Calls that are skipped may draw random numbers without being noticed. So from the first measurement on, programs draw ATen's numbers:
  // results then do not depend on when calls began to be skipped.
  NextCalls now(NextCalls next) {
    if (next == 0) return next;
    draw_atens(*context_);
    if (next < 0) return next;
    untold_.store(next, std::memory_order_relaxed);
    return next;
  }
  // Counts skipped calls when the next call is examined.
  void tell_left() {
    if (untold_.load(std::memory_order_relaxed) == 0) return;
    stats_recorder().add_left_calls(static_cast<uint64_t>(untold_.exchange(0)));
  }

  // A trace takes about as long as its program saves in 16 calls. If programs are called less often, new traces become exponentially rarer.
  bool pays() const {
    constexpr uint64_t kTried = 32, kHitsOfATrace = 16;
    const AotCounts& counts = context_->counts;
    const uint64_t traces = counts.traces, calls = counts.calls;
    return traces < kTried || counts.hits + counts.launches > kHitsOfATrace * traces || (calls & (calls - 1)) == 0;
  }

  std::shared_ptr<Family> family_of(const cache::KeyView& key, const std::string& facts) {
    constexpr size_t kMost = 256;  // kinds of calls; the least recently called is evicted
    if (auto known = families_.find(key)) return known;
    return families_.find_or_insert(key, std::make_shared<Family>(context_->options, facts), kMost).entry;
  }

  const std::shared_ptr<AotContext> context_;
  cache::GraphCache<Family> families_;
  std::atomic<NextCalls> untold_ = 0;
};

AotCore::AotCore(AotOptions options) : implementation_(std::make_shared<Implementation>(std::move(options))) {
  configure_logs_from_environment();
}
FunctionOutput AotCore::call(const FunctionCall& call) { return implementation_->call(call); }
std::optional<AotHit> AotCore::find(const FunctionCall& call) const { return implementation_->find(call); }
void AotCore::note_launch() { implementation_->note_launch(); }
NextCalls AotCore::ran_eagerly() { return implementation_->looked(Gain::None, nullptr); }
NextCalls AotCore::threw() { return implementation_->threw(); }
void AotCore::lookup_is_costly() { implementation_->lookup_is_costly(); }
void AotCore::time_backward(const std::vector<at::Tensor>& results) { implementation_->time_backward(results); }
NextCalls AotCore::took(std::uint64_t whole_ns, std::uint64_t own_ns) { return implementation_->took(whole_ns, own_ns); }
AotStats AotCore::stats() const { return implementation_->stats(); }
std::vector<AotPrograms> AotCore::programs() const { return implementation_->programs(); }
void AotCore::forget(const std::string& facts) { implementation_->forget(facts); }
void AotCore::reset() { implementation_->reset(); }

}  // namespace hindcast::detail
