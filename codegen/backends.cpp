// The one file that knows all backends.

#include "codegen/cpu/backend.h"
#include "codegen/kernel/backend.h"

namespace hindcast::codegen {

c10::SmallVector<const Backend*, 2> backends() { return {&cpu::cpu_backend()}; }

const Backend* backend_of(c10::DeviceType device) {
  for (const Backend* backend : backends()) {
    if (backend->device() == device) return backend;
  }
  return nullptr;
}

const Backend* backend_of(const capture::Graph& graph) {
  const capture::Value* first = nullptr;
  for (const capture::Value& value : graph.values) {
    if (!value.defined) continue;
    if (first == nullptr) first = &value;
    if (value.device != first->device) return nullptr;
  }
  return backend_of(first == nullptr ? c10::kCPU : first->device.type());
}

}  // namespace hindcast::codegen
