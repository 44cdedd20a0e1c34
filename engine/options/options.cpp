#include "base/fork.h"
#include "engine/options/use_options.h"

#include "hindcast/graph.h"

#include <atomic>
#include <cstdlib>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hindcast {
Compiler::Compiler(Function function, std::uint64_t identity)
    : function_(std::make_shared<const Function>(std::move(function))), identity_(identity) {
  static std::atomic<std::uint64_t> last{1};
  if (identity_ == 0) identity_ = ++last;
}

namespace compilers {
namespace {

// A placeholder: the engine itself compiles, in the background.
template <int kWhich>
const Compiler& of_the_engine() {
  static constinit base::MadeOnce<const Compiler> compiler;
  return compiler.by([] { return Compiler(Compiler::Function([](const auto&) { return std::vector<SegmentFunction>(); }), 0); });
}

}  // namespace

Compiler eager() { return of_the_engine<0>(); }
Compiler fused() { return of_the_engine<1>(); }
Compiler fused_through_aten() { return of_the_engine<2>(); }

Compiler print(std::ostream& out) {
  const auto print = [&out](const std::shared_ptr<const Graph>& graph) {
    out << graph->print() << std::flush;
    return std::vector<SegmentFunction>(graph->segments().size());
  };
  return {Compiler::Function(print), 0};  // no fixed identity: another stream may have the same address later
}

}  // namespace compilers

namespace engine {

Replay replay_of(const Compiler& compiler) {
  const auto is = [&](const Compiler& other) { return compiler.identity() == other.identity(); };
  if (is(compilers::eager())) return Replay::Eager;
  if (is(compilers::fused())) return Replay::Kernels;
  return is(compilers::fused_through_aten()) ? Replay::GroupsThroughAten : Replay::Compiled;
}

const Compiler& default_compiler() {
  static constinit base::MadeOnce<const Compiler> compiler;
  return compiler.by([] {
    const char* value = std::getenv("HINDCAST_COMPILER");
    const std::string_view name = value ? value : "";
    if (name.empty() || name == "fused") return compilers::fused();
    if (name == "eager") return compilers::eager();
    if (name == "fused_through_aten") return compilers::fused_through_aten();
    throw std::invalid_argument("HINDCAST_COMPILER is '" + std::string(name) + "'; expected eager, fused or fused_through_aten");
  });
}

void check(const Options& options) {
  if (options.limit == 0) throw std::invalid_argument("hindcast::Options::limit: 0, expected at least 1 capture per structure");
  if (options.cache_bytes == 0) throw std::invalid_argument("hindcast::Options::cache_bytes: 0, expected at least 1 byte");
  if (options.cuda_graph_bytes == 0) throw std::invalid_argument("hindcast::Options::cuda_graph_bytes: 0, expected at least 1 byte");
  if (options.cache_size == 0) throw std::invalid_argument("hindcast::Options::cache_size: 0, expected at least 1 structure");
}

bool may_back_off() {
  static constinit base::MadeOnce<const bool> may;
  return may.by([] {
    const char* value = std::getenv("HINDCAST_BACK_OFF");
    return !value || std::string_view(value) != "0";
  });
}

bool disabled_by_environment() {
  static constinit base::MadeOnce<const bool> disabled;
  return disabled.by([] {
    const char* value = std::getenv("HINDCAST_DISABLE");
    return value && *value && std::string_view(value) != "0";
  });
}

}  // namespace engine
}  // namespace hindcast
