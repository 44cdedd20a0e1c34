// The operators of torch.ops.hindcast, which the package's Python files call. torch.ops.load_library needs no Python ABI, an operator
// releases the GIL while it runs, and its exceptions arrive in Python, including a hook's own exception object.

#include "capture/recorder/recorder.h"
#include "engine/cache/captures.h"
#include "engine/compile/background.h"
#include "engine/counters/each_counter.h"
#include "engine/counters/fallback.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/log_setup.h"
#include "engine/train/watched_leaves.h"
#include "hindcast/graph.h"
#include "hindcast/hindcast.h"
#include "python/csrc/aot.h"
#include "python/csrc/current_node.h"
#include "python/csrc/graphs.h"
#include "python/csrc/guards.h"
#include "python/csrc/optim.h"
#include "python/csrc/run_backward.h"
#include "python/csrc/warnings.h"

#include <torch/library.h>

#include <stdexcept>

namespace hindcast::python {
namespace {

using Counts = c10::Dict<std::string, int64_t>;
using NamedTexts = c10::Dict<std::string, std::string>;

Counts counts_of(const std::map<std::string, uint64_t>& counts) {
  Counts result;
  for (const auto& [name, count] : counts) result.insert(name, static_cast<int64_t>(count));
  return result;
}

std::tuple<Counts, c10::Dict<std::string, double>, Counts, Counts, Counts, NamedTexts, Counts, Counts> stats() {
  const Stats stats = hindcast::stats();
  Counts counters;
  c10::Dict<std::string, double> times;
  engine::for_each_counter(stats, [&](const char* name, auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      times.insert(name, value);
    } else {
      counters.insert(name, static_cast<int64_t>(value));
    }
  });
  times.insert("ns_per_node", stats.ns_per_node());
  NamedTexts opaque_reasons;
  for (const auto& [name, reason] : stats.opaque_reasons) opaque_reasons.insert(name, reason);
  return {counters,
          times,
          counts_of(stats.misses_by_reason),
          counts_of(stats.fallbacks_by_reason),
          counts_of(stats.opaque_nodes),
          opaque_reasons,
          counts_of(stats.without_cuda_graph),
          counts_of(stats.eager_functions)};
}

std::tuple<std::vector<std::string>, std::vector<std::string>> graphs() {
  std::vector<std::string> texts, pictures;
  for (const auto& graph : engine::captured_graphs()) {
    texts.push_back(graph->print());
    pictures.push_back(graph->dot());
  }
  return {texts, pictures};
}

void record_fallbacks(const std::string& name, int64_t count) {
  const auto reason = engine::find_fallback_reason(name);
  TORCH_CHECK_VALUE(reason, "no fallback reason '", name, "'");
  for (int64_t i = 0; i < count; ++i) engine::record_fallback(*reason);
}

void set_logs(const std::string& spec, const std::string& out) {
  try {
    hindcast::set_logs(spec, out);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

void define_aot(torch::Library& m) {
  m.def(
      "aot_make(str fw_compiler, int fw_callable, str bw_compiler, int bw_callable, str partition, str dynamic, float memory_budget, "
      "bool measures_layouts, bool fallback, bool fallback_random, int check_every, int limit, bool async_, bool back_off) -> int",
      &make_function);
  m.def("aot_name_tensors(int function, Tensor[] tensors, str[] names) -> ()", &name_tensors);
  m.def("aot_drop(int function) -> ()", &drop_function);
  m.def(
      "aot_call(int function, Tensor[] inputs, int facts, int[] fixed, int? torch_functions, bool timed) -> "
      "(Tensor[] tensors, int shape, bool raised, bool warned, int[] released, int next)",
      &call_function_of);
  m.def("aot_ran_eagerly(int function) -> int", &call_ran_eagerly);
  m.def("aot_threw(int function) -> int", &call_threw);
  m.def("aot_lookup_is_costly(int function) -> ()", &lookup_is_costly);
  m.def("aot_time_backward(int function, Tensor[] results) -> ()", &time_backward_of);
  m.def("aot_took(int function, int whole_ns, int own_ns) -> int", &timed_call_took);
  m.def("aot_stats(int function) -> int[]", &function_stats);
  m.def("aot_programs(int function) -> (int[] graphs, str[] explanations)", &function_programs);
  m.def("aot_tell(str text, bool once) -> ()", &tell);
  m.def("aot_forget(int function, int facts) -> ()", &forget_kind);
  m.def("aot_reset(int function) -> ()", &reset_function);
}

/// An update whose factor is an operator's last argument.
template <auto kUpdate>
struct WithFactor;
template <class... Args, Updated (*kUpdate)(const GradientFactor&, Args...)>
struct WithFactor<kUpdate> {
  static Updated call(Args... args, const std::optional<at::Tensor>& factor) { return kUpdate(GradientFactor::of(factor), args...); }
};

void define_optim(torch::Library& m) {
  m.def(
      "optim_sgd(Tensor[] parameters, Tensor[] buffers, int[] first, float lr, float momentum, float dampening, float weight_decay, "
      "bool nesterov, bool maximize, Tensor? factor) -> (int compiled, int[] refused, str[] reasons)",
      &WithFactor<&update_sgd>::call);
  m.def(
      "optim_adam(Tensor[] parameters, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] max_exp_avg_sqs, Tensor[] steps, float lr, "
      "float beta1, float beta2, float eps, float weight_decay, bool is_decoupled, bool amsgrad, bool maximize, Tensor? factor) -> "
      "(int compiled, int[] refused, str[] reasons)",
      &WithFactor<&update_adam>::call);
  m.def(
      "optim_rmsprop(Tensor[] parameters, Tensor[] square_avgs, Tensor[] buffers, Tensor[] grad_avgs, Tensor[] steps, float lr, "
      "float alpha, float eps, float weight_decay, float momentum, bool centered, bool maximize, Tensor? factor) -> "
      "(int compiled, int[] refused, str[] reasons)",
      &WithFactor<&update_rmsprop>::call);
  m.def(
      "optim_adagrad(Tensor[] parameters, Tensor[] sums, Tensor[] steps, float lr, float lr_decay, float weight_decay, float eps, "
      "bool maximize, Tensor? factor) -> (int compiled, int[] refused, str[] reasons)",
      &WithFactor<&update_adagrad>::call);
  m.def("train_is_traced() -> bool", [] { return capture::Recorder::current() != nullptr; });
  m.def("train_accumulators_are_hooked(Tensor[] leaves) -> bool",
        [](const std::vector<at::Tensor>& leaves) { return engine::are_accumulators_hooked(leaves); });
  m.def("optim_clip(Tensor[] parameters, float max_norm, float norm_type) -> Tensor[]", &clip_gradients);
}

// Operators with kernels in Python (hindcast/_callbacks.py), which callbacks.cpp calls.
void define_callbacks(torch::Library& m) {
  m.def(
      "aot_python_function(int number, Tensor?[] inputs, bool keeps_errors) -> (Tensor?[] tensors, int shape, str facts, int owned, str? "
      "error)");
  m.def("aot_python_line() -> str");
  m.def("aot_python_takes_symbols(bool[] is_symbol, bool[] is_steady) -> int");
  m.def("aot_python_number_in_place_of(Tensor placeholder) -> (Scalar number, SymInt symbol)");
  m.def("aot_python_compiler(int number, int graph, Tensor?[] examples) -> (int program, str? error)");
  m.def("aot_python_program(int number, Tensor?[] inputs, bool keeps_errors) -> (Tensor?[] tensors, str? error)");
}

// run_backward is called with all kinds of tensors. Its only key-specific kernels are for wrappers, so for all other keys it runs directly,
// above autograd and autocast. The caller checks for dispatch modes that would intercept it.
TORCH_LIBRARY(hindcast, m) {
  m.def(
      "run_backward(Tensor[] tensors, Tensor?[] grad_tensors, bool keep_graph, bool create_graph, Tensor[] inputs, "
      "bool allow_unreachable, bool accumulate_grad, int? torch_functions, int started) -> "
      "(Tensor?[]? gradients, bool warned, int unseen, bool not_faster)",
      &run_backward);
  m.def(
      "keep_options(str compiler, str dynamic, int limit, int cache_size, int cache_bytes, int cuda_graph_bytes, bool back_off, "
      "bool deterministic, bool async_, bool verify, bool nan_guard, bool cuda_graphs, bool require_cuda_graph, bool enabled, "
      "str collector) -> int",
      &keep_options);
  m.def("enable(int options) -> int", &enable);
  m.def("enable_process(int options) -> int", &enable_process);
  m.def("disable(int guard) -> ()", &disable);
  m.def("take_warnings() -> (str[] categories, str[] texts, str[] files, int[] lines)", &take_warnings);
  m.def("current_node() -> Tensor?", &tensor_of_current_node);
  m.def("active() -> bool", [] { return active(); });
  m.def("take_pause() -> int", &take_pause);
  m.def("record_fallbacks(str reason, int count) -> ()", &record_fallbacks);
  m.def("record_eager_function(str reason) -> ()", [](const std::string& reason) { engine::stats_recorder().add_eager_function(reason); });
  m.def(
      "stats() -> (Dict(str, int) counters, Dict(str, float) times, Dict(str, int) misses_by_reason, "
      "Dict(str, int) fallbacks_by_reason, Dict(str, int) opaque_nodes, Dict(str, str) opaque_reasons, Dict(str, int) without_cuda_graph, "
      "Dict(str, int) eager_functions)",
      &stats);
  m.def("report() -> str", [] { return report(); });
  m.def("reset() -> ()", [] { reset(); });
  m.def("wait() -> ()", [] { wait(); });
  m.def("stop_background() -> ()", [] { engine::stop_background(); });
  m.def("trim() -> int", [] { return static_cast<int64_t>(trim()); });
  m.def("graphs() -> (str[] texts, str[] dots)", &graphs);
  m.def("set_logs(str spec, str out) -> ()", &set_logs);

  define_aot(m);
  m.def("graph_forget(int graph) -> ()", &forget_graph);
  m.def("graph_text(int graph) -> str", &graph_text);
  m.def("graph_dot(int graph) -> str", &graph_dot);
  m.def("graph_svg(int graph, str path) -> ()", &write_svg);
  m.def("graph_nodes(int graph) -> (str[] ops, str[][] args, str[][] names, str[][] dtypes, str[][] shapes)", &graph_nodes);
  m.def("graph_run(int graph, Tensor?[] inputs) -> Tensor?[]", &run_graph);
  define_callbacks(m);
  define_optim(m);
  for (const auto wrapper : {c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched,
                             c10::DispatchKey::BatchedNestedTensor, c10::DispatchKey::Batched, c10::DispatchKey::Functionalize}) {
    m.impl("run_backward", wrapper, &leave_to_pytorch);
  }
}

}  // namespace
}  // namespace hindcast::python
