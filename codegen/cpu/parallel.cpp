#include "codegen/cpu/parallel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

namespace hindcast::codegen::cpu {

int64_t grain_of(const Body& body) {
  constexpr int64_t kOfOneOp = 32768;
  return std::max<int64_t>(1, kOfOneOp / static_cast<int64_t>(1 + body.ops.size() / 4));
}

int64_t shares_of(int64_t size, int64_t grain) {
  if (size <= grain || at::in_parallel_region()) return 1;
  return std::min<int64_t>(at::get_num_threads(), (size + grain - 1) / grain);
}

void run_shares(int64_t shares, c10::function_ref<void(int64_t share)> run) {
  if (shares == 1) return run(0);
  // One byte per share; its address gives the share's index. The bytes are neither read nor written.
  const at::Tensor numbers = at::detail::empty_cpu({shares}, at::TensorOptions(at::kByte));
  const auto* first = static_cast<const char*>(numbers.const_data_ptr());
  auto iterator = at::TensorIteratorConfig()
                      .check_all_same_dtype(false)
                      .set_check_mem_overlap(false)
                      .resize_outputs(false)
                      .declare_static_shape({shares})
                      .add_output(numbers)
                      .build();
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t size) {
        for (int64_t i = 0; i < size; ++i) run(data[0] + i * strides[0] - first);
      },
      /*grain_size=*/1);
}

void run_ranges(int64_t size, int64_t grain, c10::function_ref<void(int64_t begin, int64_t end)> run) {
  const int64_t shares = shares_of(size, grain);
  run_shares(shares, [&](int64_t share) { run(size * share / shares, size * (share + 1) / shares); });
}

}  // namespace hindcast::codegen::cpu
