#include "codegen/fuse/random_ops.h"

#include "base/check.h"
#include "base/fork.h"
#include "codegen/device/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

namespace hindcast::codegen {
namespace {

at::Tensor philox_seed() {
  at::Tensor seed = at::empty({}, at::kLong);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  *seed.mutable_data_ptr<int64_t>() = static_cast<int64_t>(at::check_generator<at::CPUGeneratorImpl>(generator)->random64());
  return seed;
}

at::Tensor counters(c10::SymIntArrayRef size) {
  at::Tensor numbers = at::empty(C10_AS_INTARRAYREF_SLOW(size), at::kInt);
  std::iota(numbers.mutable_data_ptr<int32_t>(), numbers.mutable_data_ptr<int32_t>() + numbers.numel(), 0);
  return numbers;
}

at::Tensor philox_bernoulli(const at::Tensor& seed, const at::Tensor& rows, const at::Tensor& columns, double p, double value,
                            at::ScalarType dtype) {
  at::Tensor result = at::empty(at::infer_size(rows.sizes(), columns.sizes()), dtype);
  const int64_t row_count = rows.numel(), column_count = columns.numel();
  HC_CHECK(rows.is_contiguous() && columns.is_contiguous() && result.numel() == row_count * column_count,
           "{} rows and {} columns make {} elements", row_count, column_count, result.numel());
  const int32_t* const row = rows.const_data_ptr<int32_t>();
  const int32_t* const column = columns.const_data_ptr<int32_t>();
  const int64_t key = *seed.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "philox_bernoulli", [&] {
    using T = at::opmath_type<scalar_t>;
    const auto threshold = static_cast<T>(bernoulli_threshold(p)), kept = static_cast<T>(value);
    scalar_t* const to = result.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, result.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t r = i / column_count, first = r * column_count;
        for (const int64_t stop = std::min(end, first + column_count); i < stop; ++i)
          to[i] = static_cast<scalar_t>(device::philox_bernoulli<T>(key, row[r], column[i - first], threshold, kept));
      }
    });
  });
  return result;
}

c10::OperatorHandle found(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

// Nothing else in the process has them, unless it holds another copy of this library.
void register_ops() {
  if (c10::Dispatcher::singleton().findSchema({"hindcast::philox_seed", ""})) return;
  static auto& library = *new torch::Library(torch::Library::FRAGMENT, "hindcast", std::nullopt, __FILE__, __LINE__);
  library.def("philox_seed() -> Tensor", {at::Tag::nondeterministic_seeded});
  library.def("counters(SymInt[] size) -> Tensor", {at::Tag::pointwise});
  library.def("philox_bernoulli(Tensor seed, Tensor rows, Tensor columns, float p, float value, ScalarType dtype) -> Tensor",
              {at::Tag::pointwise});
  constexpr auto kEverywhere = c10::DispatchKey::CompositeExplicitAutograd;
  library.impl("philox_seed", torch::dispatch(kEverywhere, TORCH_FN(philox_seed)));
  library.impl("counters", torch::dispatch(kEverywhere, TORCH_FN(counters)));
  library.impl("philox_bernoulli", torch::dispatch(kEverywhere, TORCH_FN(philox_bernoulli)));
}

}  // namespace

const RandomOps& random_ops() {
  static const RandomOps* const ops = base::first_use([] {
    register_ops();
    return new RandomOps{found("hindcast::philox_seed"), found("hindcast::counters"), found("hindcast::philox_bernoulli")};
  });
  return *ops;
}

double bernoulli_threshold(double p) { return std::nearbyint(p * 0x1p24); }

}  // namespace hindcast::codegen
