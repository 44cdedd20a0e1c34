// The registry of backends: the only file that includes all of them.

#include "codegen/cpu/backend.h"
#include "codegen/cuda/backend.h"
#include "codegen/kernel/backend.h"

namespace hindcast::codegen {

c10::SmallVector<const Backend*, 2> backends() {
  if (cuda::stands_in_for(c10::kCPU)) return {&cuda::cuda_backend()};
  return {&cpu::cpu_backend(), &cuda::cuda_backend()};
}

const Backend* backend_of(c10::DeviceType device) {
  for (const Backend* backend : backends()) {
    if (backend->device() == device) return backend;
  }
  return nullptr;
}

const Backend* backend_of(const capture::Graph& graph) {
  c10::DeviceType type = c10::kCPU;
  for (const capture::Value& value : graph.values) {
    if (!value.defined || value.device.is_cpu() || value.device.type() == type) continue;
    if (type != c10::kCPU) return nullptr;
    type = value.device.type();
  }
  return backend_of(type);
}

}  // namespace hindcast::codegen
