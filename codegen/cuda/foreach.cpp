#include "codegen/cuda/foreach.h"

#include "base/check.h"
#include "codegen/cuda/launch.h"

#include <algorithm>

namespace hindcast::codegen::cuda {

void run_foreach(const Body& body, const CudaKernel& kernel, const ForeachSets& sets) {
  HC_CHECK(!body.by_rows, "sets of tensors for a kernel by rows");
  const size_t loads = body.loads.size(), tensors = loads + body.stores.size();
  const Shape shape = shape_of(body);
  for (size_t set = 0; set < sets.numel.size(); ++set) {
    Arguments arguments;
    TouchedMemory touched;
    bool all_aligned = true;
    for (size_t i = 0; i < tensors; ++i) {
      const bool is_load = i < loads, is_still = is_load && body.loads[i].pattern == AccessPattern::Still;
      const at::ScalarType type = is_load ? body.loads[i].type : body.stores[i - loads].type;
      char* const memory = sets.memory[set * tensors + i];
      arguments.add(memory);
      all_aligned &= is_still || is_aligned(memory);
      // What is written in place was read before, from the same memory.
      if (is_load) touched.add(memory, (is_still ? 1 : sets.numel[set]) * static_cast<int64_t>(c10::elementSize(type)), true);
      const auto* const first = &sets.memory[set * tensors];
      if (!is_load && std::find(first, first + loads, memory) == first + loads)
        touched.add(memory, sets.numel[set] * static_cast<int64_t>(c10::elementSize(type)), false);
    }
    for (uint32_t i = 0; i < body.scalars; ++i) arguments.add_scalar(body.compute, sets.scalars[set][i]);
    arguments.add(sets.numel[set]);
    launch(kernel, schedule_dense(sets.numel[set], all_aligned, shape, machine()->limits()), 0, arguments, sets.device, touched);
  }
}

}  // namespace hindcast::codegen::cuda
