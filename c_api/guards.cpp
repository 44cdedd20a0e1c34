#include "base/fork.h"
#include "c_api/boundary.h"
#include "c_api/choices.h"
#include "c_api/handles.h"
#include "c_api/structs.h"
#include "c_api/versions.h"
#include "hindcast/hindcast.h"

#include <thread>
#include <variant>

namespace hindcast::c_api {
namespace {

struct AnyGuard {
  std::variant<Guard, ProcessGuard> guard;
  std::thread::id thread = std::this_thread::get_id();
};

Handles<AnyGuard>& guards() {
  static constinit base::MadeOnce<Handles<AnyGuard>> guards;  // never destroyed: threads may end after main() does
  return guards.get("guard");
}

hindcast_options default_guard_options() {
  const Options options;
  return {.size = sizeof(hindcast_options),
          .compiler = HINDCAST_COMPILER_DEFAULT,
          .dynamic = number_of(options.dynamic),
          .limit = options.limit,
          .cache_size = options.cache_size,
          .cache_bytes = options.cache_bytes,
          .cuda_graph_bytes = options.cuda_graph_bytes,
          .back_off = options.back_off,
          .deterministic = options.deterministic,
          .async = options.async,
          .verify = options.verify,
          .nan_guard = options.nan_guard,
          .cuda_graphs = options.cuda_graphs,
          .require_cuda_graph = options.require_cuda_graph,
          .enabled = options.enabled};
}

Options read_options(const hindcast_options* given) {
  const hindcast_options read = read_struct(given, default_guard_options(), "hindcast_options_init");
  Options options;
  options.compiler = compiler_of(read.compiler);
  options.dynamic = dynamic_of(read.dynamic, /*for_functions=*/false);
  options.limit = read.limit;
  options.cache_size = read.cache_size;
  options.cache_bytes = read.cache_bytes;
  options.cuda_graph_bytes = read.cuda_graph_bytes;
  options.back_off = read.back_off != 0;
  options.deterministic = read.deterministic != 0;
  options.async = read.async != 0;
  options.verify = read.verify != 0;
  options.nan_guard = read.nan_guard != 0;
  options.cuda_graphs = read.cuda_graphs != 0;
  options.require_cuda_graph = read.require_cuda_graph != 0;
  options.enabled = read.enabled != 0;
  return options;
}

template <class Enable>
int32_t make_guard(const char* function, const hindcast_options* options, uint64_t* guard, const Enable& enable) {
  if (guard != nullptr) *guard = 0;
  return at_boundary(function, [&] {
    require(guard != nullptr, "`guard`, where the handle would go, is NULL");
    check_libtorch();
    *guard = guards().add(std::make_shared<AnyGuard>(AnyGuard{enable(read_options(options))}));
  });
}

}  // namespace
}  // namespace hindcast::c_api

using namespace hindcast::c_api;

extern "C" {

int32_t hindcast_options_init(hindcast_options* options, uint64_t size) {
  return at_boundary("hindcast_options_init", [&] { init_struct(options, size, default_guard_options()); });
}

int32_t hindcast_enable(const hindcast_options* options, uint64_t* guard) {
  return make_guard("hindcast_enable", options, guard, [](hindcast::Options given) { return hindcast::enable(std::move(given)); });
}

int32_t hindcast_enable_process(const hindcast_options* options, uint64_t* guard) {
  return make_guard("hindcast_enable_process", options, guard,
                    [](hindcast::Options given) { return hindcast::enable_process(std::move(given)); });
}

int32_t hindcast_disable(uint64_t guard) {
  return at_boundary("hindcast_disable", [&] {
    const std::shared_ptr<AnyGuard> found = guards().at(guard);
    const bool is_of_a_thread = std::holds_alternative<hindcast::Guard>(found->guard);
    require(!is_of_a_thread || found->thread == std::this_thread::get_id(),
            "guard " + std::to_string(guard) + " belongs to the thread that made it, which is another one; it stays");
    guards().take(guard);
  });
}

int32_t hindcast_active() {
  bool is_active = false;
  at_boundary("hindcast_active", [&] { is_active = hindcast::active(); });
  return is_active ? 1 : 0;
}
}
