#include "codegen/cuda/seeds.h"

#include "codegen/cuda/graph_library.h"
#include "codegen/cuda/machine.h"
#include "codegen/cuda/results.h"

namespace hindcast::codegen::cuda {

at::Tensor draw_seed(c10::Device device) {
  at::Tensor seed = result_maker().make_new({}, {}, at::kLong, device);
  const Machine* const with = machine();
  if (with == nullptr || !device.is_cuda() || with->device() != c10::kCUDA) return seed.random_();
  const CudaGraphsTable* const library = graph_library(nullptr);
  const std::optional<uint64_t> number = library == nullptr ? std::nullopt : library->draw(device.index());
  return number && with->write(device, seed.mutable_data_ptr(), *number) ? seed : seed.random_();
}

}  // namespace hindcast::codegen::cuda
