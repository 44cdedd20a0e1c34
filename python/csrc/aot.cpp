#include "python/csrc/aot.h"

#include "base/fork.h"
#include "base/log.h"
#include "engine/aot/warn_once.h"
#include "hindcast/detail/aot_core.h"
#include "python/csrc/callbacks.h"
#include "python/csrc/graphs.h"
#include "python/csrc/guards.h"
#include "python/csrc/kept.h"
#include "python/csrc/warnings.h"

#include <c10/util/Exception.h>

#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

namespace hindcast::python {

// Names, as in a module, of the tensors that Python has seen a function read.
class TensorNames {
 public:
  void add(at::TensorList tensors, const std::vector<std::string>& names) {
    const std::lock_guard lock(mutex_);
    for (auto at = names_.begin(); at != names_.end();) at = at->second.tensor.expired() ? names_.erase(at) : std::next(at);
    for (size_t i = 0; i < tensors.size(); ++i) {
      names_.insert_or_assign(tensors[i].unsafeGetTensorImpl(), Named{names[i], Weak(tensors[i].getIntrusivePtr())});
    }
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    names_.clear();
  }
  bool has(const at::Tensor& tensor) const {
    const std::lock_guard lock(mutex_);
    return names_.count(tensor.unsafeGetTensorImpl()) != 0;
  }
  std::vector<std::string> of(const std::vector<at::Tensor>& tensors) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const at::Tensor& tensor : tensors) {
      const auto found = names_.find(tensor.unsafeGetTensorImpl());
      names.push_back(found == names_.end() ? std::string() : found->second.name);
    }
    return names;
  }

 private:
  mutable base::ForkSafe<std::mutex> mutex_{base::ForkRank::Leaf};
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;
  struct Named {
    std::string name;
    Weak tensor;  // keeps the address from being reused
  };
  std::unordered_map<const at::TensorImpl*, Named> names_;
};

// The C++ side of one aot_function() in Python.
class Function {
 public:
  Function(AotOptions options, std::shared_ptr<TensorNames> tensor_names) : core(std::move(options)), names(std::move(tensor_names)) {}

  // What Python keeps for one kind of call, as long as there may be programs for it.
  std::shared_ptr<const Kept> facts(int64_t number) {
    const std::lock_guard lock(mutex_);
    auto& kept = facts_[number];
    if (!kept) kept = std::make_shared<const Kept>(number);
    return kept;
  }

  void forget(int64_t number) {
    core.forget(std::to_string(number));
    std::shared_ptr<const Kept> gone;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    const auto found = facts_.find(number);
    if (found == facts_.end()) return;
    gone = std::move(found->second);
    facts_.erase(found);
  }

  void reset() {
    core.reset();
    names->clear();
    std::unordered_map<int64_t, std::shared_ptr<const Kept>> gone;
    const std::lock_guard lock(mutex_);
    gone.swap(facts_);
  }

  detail::AotCore core;
  const std::shared_ptr<TensorNames> names;

 private:
  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Setup};
  std::unordered_map<int64_t, std::shared_ptr<const Kept>> facts_;
};

namespace {

struct Functions {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Setup};
  std::map<int64_t, std::shared_ptr<Function>> by_number;
  int64_t last = 0;
};
Functions& functions() {
  static constinit base::MadeOnce<Functions> functions;
  return functions.get();
}

std::shared_ptr<Function> find_function(int64_t number) {
  const std::lock_guard lock(functions().mutex);
  const auto found = functions().by_number.find(number);
  TORCH_CHECK_VALUE(found != functions().by_number.end(), "no function ", number);
  return found->second;
}

ProgramCompiler program_compiler(const std::string& name, int64_t callable) {
  if (callable == 0) return name.empty() ? ProgramCompiler() : ProgramCompiler(compiler_named(name));
  const auto kept = std::make_shared<const Kept>(callable);
  return ProgramCompiler([kept](const std::shared_ptr<const Graph>& graph, const std::vector<at::Tensor>& examples) -> ProgramFunction {
    const int64_t number = call_compiler(kept->number(), keep_graph(graph), examples);
    if (number == 0) return {};
    const auto program = std::make_shared<const Kept>(number);
    return [program](std::vector<at::Tensor> inputs) { return call_program(program->number(), inputs); };
  });
}

detail::FunctionOutput run_function(const Kept& facts, const std::vector<at::Tensor>& inputs) {
  CallbackResult result = call_function(facts.number(), inputs);
  detail::FunctionOutput output{std::move(result.tensors), nullptr, std::move(result.facts)};
  if (result.shape != 0) output.shape = std::make_shared<const Kept>(result.shape);
  output.owned = result.owned;
  return output;
}

}  // namespace

int64_t make_function(const std::string& fw_compiler, int64_t fw_callable, const std::string& bw_compiler, int64_t bw_callable,
                      const std::string& partition, const std::string& dynamic, double memory_budget, bool measures_layouts, bool fallback,
                      bool fallback_random, int64_t check_every, int64_t limit, bool async, bool back_off) {
  AotOptions options;
  options.fw_compiler = program_compiler(fw_compiler, fw_callable);
  options.bw_compiler = program_compiler(bw_compiler, bw_callable);
  TORCH_CHECK_VALUE(partition == "standard" || partition == "min_cut", "no partition '", partition, "'");
  options.partition = partition == "standard" ? hindcast::partition::standard : hindcast::partition::min_cut;
  collect_garbage();
  find_lines();
  const bool takes_symbols = sizes_are_numbers();  // also for Dynamic::Never, whose sizes that depend on data are symbols
  options.dynamic = dynamic == "never" || !takes_symbols ? Dynamic::Never : dynamic == "inferred" ? Dynamic::Inferred : Dynamic::Automatic;
  options.memory_budget = memory_budget;
  options.layouts = measures_layouts ? Layouts::Measured : Layouts::AsGiven;
  options.fallback = fallback;
  options.fallback_random = fallback_random;
  options.check_every = static_cast<size_t>(check_every);
  options.limit = static_cast<size_t>(limit);
  options.async = async;
  options.back_off = back_off;
  auto names = std::make_shared<TensorNames>();
  options.tensor_names = [names](const std::vector<at::Tensor>& tensors) { return names->of(tensors); };
  try {
    auto function = std::make_shared<Function>(std::move(options), std::move(names));
    const std::lock_guard lock(functions().mutex);
    const int64_t number = ++functions().last;
    functions().by_number.emplace(number, std::move(function));
    return number;
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

void name_tensors(int64_t function, at::TensorList tensors, const std::vector<std::string>& names) {
  TORCH_CHECK_VALUE(tensors.size() == names.size(), tensors.size(), " tensors have ", names.size(), " names");
  find_function(function)->names->add(tensors, names);
}

void drop_function(int64_t function) {
  std::shared_ptr<Function> gone;  // destroyed after the lock is released
  const std::lock_guard lock(functions().mutex);
  const auto found = functions().by_number.find(function);
  if (found == functions().by_number.end()) return;
  gone = std::move(found->second);
  functions().by_number.erase(found);
}

CallOutcome call_function_of(int64_t function, at::TensorList inputs, int64_t facts, at::IntArrayRef fixed,
                             std::optional<int64_t> torch_functions, bool is_timed) {
  // Kept until this thread's next call: Python looks the number up after this one returns.
  static thread_local std::shared_ptr<const void> shape;
  const KeptWarnings warnings;
  const KeepsErrors keeps_errors(torch_functions);
  const auto found = find_function(function);
  const auto kept = found->facts(facts);
  std::vector<bool> is_fixed;
  for (const int64_t input : fixed) {
    is_fixed.resize(inputs.size());
    is_fixed.at(static_cast<size_t>(input)) = true;
  }
  const auto run = [&](const std::vector<at::Tensor>& tensors) { return run_function(*kept, tensors); };
  try {
    detail::FunctionOutput output = found->core.call({inputs.vec(), std::to_string(facts), std::move(is_fixed), run,
                                                      [&](const at::Tensor& tensor) { return found->names->has(tensor); }, is_timed});
    const int64_t number = number_of_shape(output);
    shape = std::move(output.shape);
    return {std::move(output.tensors), number, false, warnings.any(), take_released(), output.next};
  } catch (const PythonError&) {
    return {{}, 0, true, warnings.any(), take_released(), 0};
  }
}

KindOfCall kind_of_call(int64_t function, int64_t facts, const std::vector<int64_t>& fixed) {
  const auto found = find_function(function);
  KindOfCall kind{found, found->facts(facts), std::to_string(facts), {}};
  for (const int64_t input : fixed) {
    if (kind.is_fixed.size() <= static_cast<size_t>(input)) kind.is_fixed.resize(static_cast<size_t>(input) + 1);
    kind.is_fixed[static_cast<size_t>(input)] = true;
  }
  return kind;
}

detail::FunctionOutput call_kind(const KindOfCall& kind, std::vector<at::Tensor> inputs, bool is_timed,
                                 c10::function_ref<void()> before_run) {
  const auto run = [&](const std::vector<at::Tensor>& tensors) {
    before_run();
    return run_function(*kind.kept, tensors);
  };
  detail::FunctionCall call = function_call_of(kind, std::move(inputs), run);
  call.is_timed = is_timed;
  return core_of(kind).call(call);
}

detail::FunctionCall function_call_of(const KindOfCall& kind, std::vector<at::Tensor> inputs, detail::RunFunction run) {
  const TensorNames& names = *kind.function->names;
  return {std::move(inputs), kind.facts, kind.is_fixed, run, [&names](const at::Tensor& tensor) { return names.has(tensor); }};
}

detail::AotCore& core_of(const KindOfCall& kind) { return kind.function->core; }

int64_t number_of_shape(const detail::FunctionOutput& output) {
  if (output.is_functions) return kFunctions;
  return output.shape ? static_cast<const Kept*>(output.shape.get())->number() : 0;
}

int64_t call_ran_eagerly(int64_t function) { return find_function(function)->core.ran_eagerly(); }

int64_t call_threw(int64_t function) { return find_function(function)->core.threw(); }

void lookup_is_costly(int64_t function) { find_function(function)->core.lookup_is_costly(); }

void time_backward_of(int64_t function, at::TensorList results) { find_function(function)->core.time_backward(results.vec()); }

int64_t timed_call_took(int64_t function, int64_t whole_ns, int64_t own_ns) {
  return find_function(function)->core.took(static_cast<uint64_t>(whole_ns), static_cast<uint64_t>(own_ns));
}

std::vector<int64_t> function_stats(int64_t function) {
  const AotStats stats = find_function(function)->core.stats();
  std::vector<int64_t> counts;
  for (const uint64_t count : {stats.calls, stats.hits, stats.traces, stats.eager, stats.backwards, stats.numbers_differed}) {
    counts.push_back(static_cast<int64_t>(count));
  }
  return counts;
}

std::tuple<std::vector<int64_t>, std::vector<std::string>> function_programs(int64_t function) {
  std::vector<int64_t> numbers;
  std::vector<std::string> explanations;
  for (const detail::AotPrograms& programs : find_function(function)->core.programs()) {
    for (const auto& graph : {programs.joint, programs.forward, programs.backward}) numbers.push_back(keep_graph(graph));
    explanations.push_back(programs.explanation);
  }
  return {std::move(numbers), std::move(explanations)};
}

void forget_kind(int64_t function, int64_t facts) { find_function(function)->forget(facts); }

void tell(const std::string& text, bool once) {
  if (once) return engine::warn_once(text);
  HC_LOG(Aot, Info, "{}", text);
}

void reset_function(int64_t function) { find_function(function)->reset(); }

}  // namespace hindcast::python
