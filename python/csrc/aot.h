#pragma once
// hindcast.aot_function() by number: an engine::AotCore whose function is Python's.

#include "engine/aot/core.h"
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

/// A compiler is a name, or the number of a callable that Python keeps; an empty name and 0 is the default.
int64_t make_function(const std::string& fw_compiler, int64_t fw_callable, const std::string& bw_compiler, int64_t bw_callable,
                      const std::string& partition, const std::string& dynamic, double memory_budget, bool measures_layouts, bool fallback,
                      bool fallback_random, int64_t check_every, int64_t limit, bool async, bool back_off);
/// Tensors that the function reads from outside, and what texts call them. Whoever tells them says when they are gone, by forget_kind():
/// programs do not keep them alive.
void name_tensors(int64_t function, at::TensorList tensors, const std::vector<std::string>& names);
void drop_function(int64_t function);

/// The tensors that the function returned; the number of what else it did, or kFunctions; whether it raised, or why the call failed; whether
/// take_warnings() has something to take; numbers that Python need not keep any more; and engine::NextCalls.
using CallOutcome = std::tuple<std::vector<at::Tensor>, int64_t, bool, bool, std::vector<int64_t>, int64_t>;
constexpr int64_t kFunctions = -2;  // of a timed call: Python runs the function, and times it
/// `facts` is the number of what Python keeps of this kind of call, the function among it. `fixed`: the inputs whose sizes never
/// become dynamic. `is_timed`: Python calls timed_call_took() behind it. Call it without the GIL.
CallOutcome call_function_of(int64_t function, at::TensorList inputs, int64_t facts, at::IntArrayRef fixed,
                             std::optional<int64_t> torch_functions, bool is_timed);
class Function;
/// Calls with the same facts, from C++.
struct KindOfCall {
  std::shared_ptr<Function> function;
  std::shared_ptr<const Kept> kept;  // what Python keeps of them
  std::string facts;
  std::vector<bool> is_fixed;
};
KindOfCall kind_of_call(int64_t function, int64_t facts, const std::vector<int64_t>& fixed);
/// The same as call_function_of(), for who keeps warnings and errors itself. `before_run` is called where the call runs the function.
engine::FunctionOutput call_kind(const KindOfCall& kind, std::vector<at::Tensor> inputs, bool is_timed,
                                 c10::function_ref<void()> before_run);
/// What call_kind() calls it with, and on what. `run` outlives the result.
engine::FunctionCall function_call_of(const KindOfCall& kind, std::vector<at::Tensor> inputs, engine::RunFunction run);
engine::AotCore& core_of(const KindOfCall& kind);
/// CallOutcome's number.
int64_t number_of_shape(const engine::FunctionOutput& output);

/// engine::NextCalls, behind a call that Python left to the function, and behind a timed one.
int64_t call_ran_eagerly(int64_t function);
/// Behind the function's turn of a timed call, with what it returned.
void time_backward_of(int64_t function, at::TensorList results);
int64_t timed_call_took(int64_t function, int64_t whole_ns, int64_t own_ns);

/// calls, hits, traces, eager, backwards, numbers_differed.
std::vector<int64_t> function_stats(int64_t function);
/// Numbers of graphs, three for each program: joint, forward, backward or 0; and what is saved and why.
std::tuple<std::vector<int64_t>, std::vector<std::string>> function_programs(int64_t function);
/// Forgets the programs of the calls with these facts, of which there will be no more.
void forget_kind(int64_t function, int64_t facts);
/// To the log `aot`. `once`: as a warning, the first time.
void tell(const std::string& text, bool once);
void reset_function(int64_t function);

}  // namespace hindcast::python
