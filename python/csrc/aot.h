#pragma once
// The operators behind hindcast.aot_function(): engine::AotCore objects by number, each with a Python function.

#include "hindcast/detail/aot_core.h"
#include "python/csrc/kept.h"

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace hindcast::python {

/// A compiler is a name, or the number of a callable that Python keeps. An empty name and 0 mean the default.
int64_t make_function(const std::string& fw_compiler, int64_t fw_callable, const std::string& bw_compiler, int64_t bw_callable,
                      const std::string& partition, const std::string& dynamic, double memory_budget, bool measures_layouts, bool fallback,
                      bool fallback_random, int64_t check_every, int64_t limit, bool async, bool back_off);
/// Names tensors that the function reads from outside, for texts. Programs do not keep these alive: the caller reports their end with
/// forget_kind().
void name_tensors(int64_t function, at::TensorList tensors, const std::vector<std::string>& names);
void drop_function(int64_t function);

/// The tensors that the function returned; the number of its non-tensor results, or kFunctions; whether the call raised; whether
/// take_warnings() has warnings; numbers that Python can release; and engine::NextCalls.
using CallOutcome = std::tuple<std::vector<at::Tensor>, int64_t, bool, bool, std::vector<int64_t>, int64_t>;
constexpr int64_t kFunctions = -2;  // in a timed call: Python is to run the function, and time it
/// `facts`: the number of what Python keeps for this kind of call, including the function. `fixed`: the inputs whose sizes never become
/// dynamic. `is_timed`: Python calls timed_call_took() afterwards. Call it without the GIL.
CallOutcome call_function_of(int64_t function, at::TensorList inputs, int64_t facts, at::IntArrayRef fixed,
                             std::optional<int64_t> torch_functions, bool is_timed);
class Function;
/// A kind of call (all calls with the same facts), for callers in C++.
struct KindOfCall {
  std::shared_ptr<Function> function;
  std::shared_ptr<const Kept> kept;  // what Python keeps for them
  std::string facts;
  std::vector<bool> is_fixed;
};
KindOfCall kind_of_call(int64_t function, int64_t facts, const std::vector<int64_t>& fixed);
/// The same as call_function_of(), for callers that handle warnings and errors themselves. `before_run` is called before the function runs.
detail::FunctionOutput call_kind(const KindOfCall& kind, std::vector<at::Tensor> inputs, bool is_timed,
                                 c10::function_ref<void()> before_run);
/// The FunctionCall that call_kind() makes. `run` must outlive the result.
detail::FunctionCall function_call_of(const KindOfCall& kind, std::vector<at::Tensor> inputs, detail::RunFunction run);
detail::AotCore& core_of(const KindOfCall& kind);
/// The number in CallOutcome.
int64_t number_of_shape(const detail::FunctionOutput& output);

/// Called after Python has run the function itself. Returns engine::NextCalls.
int64_t call_ran_eagerly(int64_t function);
/// Called after a call raised. Returns NextCalls, like the former.
int64_t call_threw(int64_t function);
/// The caller compares so much to find a call that a program may gain less.
void lookup_is_costly(int64_t function);
/// Called in a timed call after the function ran, with its results.
void time_backward_of(int64_t function, at::TensorList results);
int64_t timed_call_took(int64_t function, int64_t whole_ns, int64_t own_ns);

/// calls, hits, traces, eager, backwards, numbers_differed.
std::vector<int64_t> function_stats(int64_t function);
/// Numbers of graphs, three for each program (joint, forward, backward or 0), and an explanation of what is saved and why.
std::tuple<std::vector<int64_t>, std::vector<std::string>> function_programs(int64_t function);
/// Forgets the programs of calls with these facts: there will be no more such calls.
void forget_kind(int64_t function, int64_t facts);
/// Writes to the log `aot`. `once`: as a warning the first time.
void tell(const std::string& text, bool once);
void reset_function(int64_t function);

}  // namespace hindcast::python
