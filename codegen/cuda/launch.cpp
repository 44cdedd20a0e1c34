#include "codegen/cuda/launch.h"

#include "codegen/cuda/logged_launches.h"

#include <algorithm>

namespace hindcast::codegen::cuda {

void TouchedMemory::add(const at::Tensor& tensor, bool has_values) {
  if (!is_wanted_ || !tensor.defined() || tensor.numel() == 0) return;
  // The range from the first to the last element that the strides reach.
  int64_t first = 0, last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const int64_t reach = (tensor.size(d) - 1) * tensor.stride(d);
    (reach < 0 ? first : last) += reach;
  }
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  all_.push_back({static_cast<const char*>(tensor.const_data_ptr()) + first * bytes, (last - first + 1) * bytes, has_values});
}

void TouchedMemory::writes(const Concats& concats) {
  if (is_wanted_) concats.for_each_tensor([&](const at::Tensor& tensor) { add(tensor, false); });
}

void TouchedMemory::leaves(const LeafWrites* leaves) {
  if (!is_wanted_ || leaves == nullptr) return;
  for (const LeafWrites::Write& write : leaves->writes()) add(write.gradient, write.adds);
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kAccess == 0; }

bool are_aligned(const Group& group, const LeafWrites* leaves) {
  const auto is_one = [&](const LeafWrites::Write& write) {
    return group.body.stores[write.store].leaves == 0 || is_aligned(write.memory);
  };
  return leaves == nullptr || std::all_of(leaves->writes().begin(), leaves->writes().end(), is_one);
}

void launch(const CudaKernel& kernel, const LaunchConfig& config, uint32_t shared_bytes, const Arguments& arguments, c10::Device device,
            const TouchedMemory& memory, bool is_of_sets) {
  const Launch launch{.function = kernel.function(config.entry),
                      .module = kernel.module(config.entry),
                      .grid = config.grid,
                      .block = config.block,
                      .shared_bytes = shared_bytes,
                      .argument = arguments.data(),
                      .argument_bytes = arguments.bytes(),
                      .pointers = arguments.pointers(),
                      .leads_outside = arguments.do_lead_outside(),
                      .is_of_sets = is_of_sets,
                      .device = device,
                      .memory = memory.all()};
  if (LoggedLaunches* const replaced = LoggedLaunches::replaced_now(); replaced != nullptr && is_of_sets) [[unlikely]]
    return replaced->replace_next(launch);
  machine()->launch(launch);
}

}  // namespace hindcast::codegen::cuda
