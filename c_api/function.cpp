#include "base/fork.h"
#include "base/json.h"
#include "c_api/boundary.h"
#include "c_api/callback.h"
#include "c_api/choices.h"
#include "c_api/handles.h"
#include "c_api/structs.h"
#include "c_api/tensors.h"
#include "c_api/versions.h"
#include "hindcast/aot_function.h"

namespace hindcast::c_api {
namespace {

struct CallBack {
  std::shared_ptr<const Callback> callback;
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const { return (*callback)(inputs); }
};

struct Function {
  AotFunction<CallBack> run;
  uint64_t output_count;
};

Handles<Function>& functions() {
  static constinit base::MadeOnce<Handles<Function>> functions;
  return functions.get("function");
}

hindcast_function_options default_function_options() {
  const AotOptions options;
  return {.size = sizeof(hindcast_function_options),
          .compiler = HINDCAST_COMPILER_DEFAULT,
          .partition = HINDCAST_PARTITION_STANDARD,
          .dynamic = number_of(options.dynamic),
          .back_off = options.back_off,
          .fallback = options.fallback,
          .fallback_random = options.fallback_random,
          .async = options.async,
          .reserved = 0,
          .memory_budget = options.memory_budget,
          .limit = options.limit,
          .check_every = options.check_every};
}

AotOptions read_options(const hindcast_function_options* given) {
  const hindcast_function_options read = read_struct(given, default_function_options(), "hindcast_function_options_init");
  AotOptions options;
  if (const Compiler compiler = compiler_of(read.compiler)) options.fw_compiler = options.bw_compiler = compiler;
  require(read.partition == HINDCAST_PARTITION_STANDARD || read.partition == HINDCAST_PARTITION_MIN_CUT,
          "partition is " + std::to_string(read.partition) + "; expected a HINDCAST_PARTITION_");
  if (read.partition == HINDCAST_PARTITION_MIN_CUT) options.partition = partition::min_cut;
  require(read.reserved == 0, "reserved is " + std::to_string(read.reserved) + "; expected 0");
  options.dynamic = dynamic_of(read.dynamic, /*for_functions=*/true);
  options.back_off = read.back_off != 0;
  options.fallback = read.fallback != 0;
  options.fallback_random = read.fallback_random != 0;
  options.async = read.async != 0;
  options.memory_budget = read.memory_budget;
  options.limit = read.limit;
  options.check_every = read.check_every;
  return options;
}

std::string stats_of(const Function& function) {
  const AotStats stats = function.run.stats();
  return base::JsonObject()
      .add("calls", stats.calls)
      .add("hits", stats.hits)
      .add("traces", stats.traces)
      .add("eager", stats.eager)
      .add("left", stats.left)
      .add("backwards", stats.backwards)
      .add("numbers_differed", stats.numbers_differed)
      .str();
}

// Writes all outputs or none, since the caller frees whatever is in its array.
void give_tensors(const std::vector<at::Tensor>& tensors, void** outputs) {
  std::vector<std::unique_ptr<at::Tensor>> made;
  made.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) made.push_back(std::make_unique<at::Tensor>(tensor));
  for (size_t i = 0; i < made.size(); ++i) outputs[i] = made[i].release();
}

}  // namespace
}  // namespace hindcast::c_api

using namespace hindcast::c_api;

extern "C" {

int32_t hindcast_function_options_init(hindcast_function_options* options, uint64_t size) {
  return at_boundary("hindcast_function_options_init", [&] { init_struct(options, size, default_function_options()); });
}

int32_t hindcast_function_create(hindcast_callback callback, void* user_data, void (*release)(void* user_data), uint64_t output_count,
                                 const hindcast_function_options* options, uint64_t* function) {
  if (function != nullptr) *function = 0;
  return at_boundary("hindcast_function_create", [&] {
    const auto kept = std::make_shared<const Callback>(callback, user_data, release, output_count);
    require(callback != nullptr, "the callback is NULL");
    require(function != nullptr, "`function`, where the handle would go, is NULL");
    require(output_count != 0, "output_count is 0; expected at least 1 output");
    check_libtorch();
    *function =
        functions().add(std::make_shared<Function>(Function{hindcast::aot_function(CallBack{kept}, read_options(options)), output_count}));
  });
}

int32_t hindcast_function_call(uint64_t function, const char* facts, void* const* inputs, uint64_t input_count, void** outputs,
                               uint64_t output_count) {
  for (uint64_t i = 0; outputs != nullptr && i < output_count; ++i) outputs[i] = nullptr;
  return at_boundary("hindcast_function_call", [&] {
    const std::shared_ptr<Function> found = functions().at(function);
    require(outputs != nullptr, "the array of outputs is NULL");
    require(output_count == found->output_count, "output_count is " + std::to_string(output_count) + "; expected " +
                                                     std::to_string(found->output_count) + ", as the function was created");
    const std::string given = facts == nullptr ? "" : facts;
    give_tensors(found->run.call_with([&] { return given; }, tensors_at(inputs, input_count, "input")), outputs);
  });
}

int32_t hindcast_function_stats_json(uint64_t function, char** text) {
  if (text != nullptr) *text = nullptr;
  return at_boundary("hindcast_function_stats_json", [&] {
    require(text != nullptr, "`text`, where it would go, is NULL");
    *text = new_text(stats_of(*functions().at(function)));
  });
}

int32_t hindcast_function_destroy(uint64_t function) {
  return at_boundary("hindcast_function_destroy", [&] { functions().take(function); });
}
}
