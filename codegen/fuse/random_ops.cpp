#include "codegen/fuse/random_ops.h"

#include "base/check.h"
#include "base/fork.h"
#include "codegen/device/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

namespace hindcast::codegen {
namespace {

at::Tensor (*seed_elsewhere)(c10::Device device) = [](c10::Device device) {
  return at::empty({}, at::TensorOptions(at::kLong).device(device)).random_();
};

at::Tensor philox_seed(c10::Device device) {
  if (!device.is_cpu()) return seed_elsewhere(device);
  at::Tensor seed = at::empty({}, at::kLong);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  *seed.mutable_data_ptr<int64_t>() = static_cast<int64_t>(at::check_generator<at::CPUGeneratorImpl>(generator)->random64());
  return seed;
}

at::Tensor (*counters_elsewhere)(at::IntArrayRef size, c10::Device device) = [](at::IntArrayRef size, c10::Device device) {
  return at::arange(c10::multiply_integers(size), at::device(device).dtype(at::kInt)).view(size);
};

at::Tensor counters(c10::SymIntArrayRef symbols, c10::Device device) {
  const at::IntArrayRef size = C10_AS_INTARRAYREF_SLOW(symbols);
  if (!device.is_cpu()) return counters_elsewhere(size, device);
  at::Tensor numbers = at::empty(size, at::kInt);
  std::iota(numbers.mutable_data_ptr<int32_t>(), numbers.mutable_data_ptr<int32_t>() + numbers.numel(), 0);
  return numbers;
}

at::Tensor philox_bernoulli(const at::Tensor& seed, const at::Tensor& rows, const at::Tensor& columns, double p, double value,
                            at::ScalarType dtype) {
  if (!seed.is_cpu()) return philox_bernoulli_by_ops(seed, rows, columns, p, value, dtype);
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

at::Tensor philox_dropout(const at::Tensor& self, const at::Tensor& seed, const at::Tensor& rows, const at::Tensor& columns, double p,
                          double value) {
  const at::ScalarType type = self.scalar_type(), wide = at::toOpMathType(type);
  return (self.to(wide) * philox_bernoulli(seed, rows, columns, p, value, wide)).to(type);
}

c10::OperatorHandle found(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

// Registers the ops, unless another copy of this library in the process has done so.
void register_ops() {
  if (c10::Dispatcher::singleton().findSchema({"hindcast::philox_seed", ""})) return;
  auto& library = *new torch::Library(torch::Library::FRAGMENT, "hindcast", std::nullopt, __FILE__, __LINE__);
  library.def("philox_seed(Device device) -> Tensor", {at::Tag::nondeterministic_seeded});
  library.def("counters(SymInt[] size, Device device) -> Tensor", {at::Tag::pointwise});
  library.def("philox_bernoulli(Tensor seed, Tensor rows, Tensor columns, float p, float value, ScalarType dtype) -> Tensor",
              {at::Tag::pointwise});
  library.def("philox_dropout(Tensor self, Tensor seed, Tensor rows, Tensor columns, float p, float value) -> Tensor",
              {at::Tag::pointwise});
  constexpr auto kEverywhere = c10::DispatchKey::CompositeExplicitAutograd;
  library.impl("philox_seed", torch::dispatch(kEverywhere, TORCH_FN(philox_seed)));
  library.impl("counters", torch::dispatch(kEverywhere, TORCH_FN(counters)));
  library.impl("philox_bernoulli", torch::dispatch(kEverywhere, TORCH_FN(philox_bernoulli)));
  library.impl("philox_dropout", torch::dispatch(kEverywhere, TORCH_FN(philox_dropout)));
}

}  // namespace

void draw_seeds_by(at::Tensor (*draw)(c10::Device device)) { seed_elsewhere = draw; }
void make_counters_by(at::Tensor (*make)(at::IntArrayRef size, c10::Device device)) { counters_elsewhere = make; }

const RandomOps& random_ops() {
  static constinit base::MadeOnce<const RandomOps> ops;
  return ops.by([] {
    register_ops();
    return RandomOps{found("hindcast::philox_seed"), found("hindcast::counters"), found("hindcast::philox_bernoulli"),
                     found("hindcast::philox_dropout")};
  });
}

// Computes the same numbers as codegen/device/random.h. Each is in the lower 32 bits of an int64; the upper bits are ignored.
at::Tensor philox_bernoulli_by_ops(const at::Tensor& seed, const at::Tensor& rows, const at::Tensor& columns, double p, double value,
                                   at::ScalarType dtype) {
  constexpr int64_t kHalf = 0xffffffff, kFactor = 0xD256D193, kStep = 0x9E3779B9;
  const at::Tensor column = columns.to(at::kLong) & kHalf;
  at::Tensor left = at::bitwise_right_shift(column, 1);
  at::Tensor right = ((rows.to(at::kLong) & kHalf) + (at::bitwise_right_shift(seed, 32) & kHalf)) & kHalf;
  at::Tensor key = seed & kHalf;
  for (int round = 0; round < device::kPhiloxRounds; ++round) {
    const at::Tensor product = (left & kHalf) * kFactor;
    left = (at::bitwise_right_shift(product, 32) & kHalf) ^ key ^ right;
    right = product;
    key = (key + kStep) & kHalf;
  }
  const at::Tensor drawn = at::where((column & 1).ne(0), right, left) & kHalf;
  const at::Tensor is_kept = at::bitwise_right_shift(drawn, 8).lt(static_cast<int64_t>(bernoulli_threshold(p)));
  return at::where(is_kept, at::scalar_tensor(value, seed.options().dtype(dtype)), at::zeros({}, seed.options().dtype(dtype)));
}

double bernoulli_threshold(double p) { return std::nearbyint(p * 0x1p24); }

}  // namespace hindcast::codegen
