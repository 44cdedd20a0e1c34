#include "engine/options.h"

#include "capture/graph.h"

#include <atomic>
#include <cstdlib>
#include <ostream>
#include <stdexcept>
#include <string_view>

namespace hindcast {
Compiler::Compiler(Function function, std::uint64_t identity)
    : function_(std::make_shared<const Function>(std::move(function))), identity_(identity) {
  static std::atomic<std::uint64_t> last{1};
  if (identity_ == 0) identity_ = ++last;
}

namespace compilers {

Compiler eager() { return {}; }

// The engine does the work, beside the backward; the function only stands for it.
Compiler fused() {
  static const auto* compiler = new Compiler(Compiler::Function([](const auto&) { return std::vector<SegmentFunction>(); }), 0);
  return *compiler;
}
Compiler fused_through_aten() {
  static const auto* compiler = new Compiler(Compiler::Function([](const auto&) { return std::vector<SegmentFunction>(); }), 0);
  return *compiler;
}

Compiler print(std::ostream& out) {
  const auto print = [&out](const std::shared_ptr<const Graph>& graph) {
    out << graph->print() << std::flush;
    return std::vector<SegmentFunction>(graph->segments().size());
  };
  return {Compiler::Function(print), 0};  // another stream may stand at the same address later
}

}  // namespace compilers

namespace engine {

Fusion fusion_of(const Compiler& compiler) {
  if (compiler.identity() == compilers::fused().identity()) return Fusion::Kernels;
  return compiler.identity() == compilers::fused_through_aten().identity() ? Fusion::ThroughAten : Fusion::None;
}

void check(const Options& options) {
  if (options.limit == 0) throw std::invalid_argument("hindcast::Options::limit: 0, expected at least 1 capture a structure");
  if (options.cache_size == 0) throw std::invalid_argument("hindcast::Options::cache_size: 0, expected at least 1 structure");
}

bool disabled_by_environment() {
  static const bool disabled = [] {
    const char* value = std::getenv("HINDCAST_DISABLE");
    return value && *value && std::string_view(value) != "0";
  }();
  return disabled;
}

}  // namespace engine
}  // namespace hindcast
