#include "engine/diagnosis/opaque_nodes.h"

#include "base/log.h"
#include "engine/counters/stats_recorder.h"

#include <atomic>

namespace hindcast::engine {
namespace {

// LibTorch's class for TorchScript gradients, in an anonymous namespace. Its backward runs in TorchScript's interpreter.
constexpr std::string_view kTorchScriptNode = "DifferentiableGraphBackward";

std::atomic<bool> has_warned{false};

}  // namespace

std::string_view advice_on_opaque_node(std::string_view name) {
  if (name.find(kTorchScriptNode) == std::string_view::npos) return {};
  return "TorchScript's optimizer hides operators from autograd in DifferentiableGraphBackward nodes, which hindcast can only call. Load "
         "the "
         "module by hindcast::jit_load(), or call hindcast::jit_prepare(module) before its first forward (Python: "
         "torch.jit.optimized_execution(False) around it). See docs/torchscript.md.";
}

void tell_opaque_node(const std::string& name, const std::string& reason) {
  stats_recorder().add_opaque_node(name, reason);
  const std::string_view advice = advice_on_opaque_node(name);
  if (advice.empty() || has_warned.load(std::memory_order_relaxed) || has_warned.exchange(true)) return;
  HC_LOG(Fallbacks, Warning, "{}", advice);
}

void forget_opaque_node_warnings() { has_warned.store(false, std::memory_order_relaxed); }

}  // namespace hindcast::engine
