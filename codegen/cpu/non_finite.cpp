#include "codegen/cpu/non_finite.h"

#include "codegen/cpu/parallel.h"

#include <atomic>

namespace hindcast::codegen::cpu {
namespace {

constexpr int64_t kGrain = 1 << 18;  // minimum number of elements per thread

// Infinities and NaN have an exponent of all ones: if the sign is cleared, adding one to the exponent carries into the sign bit. Uses
// integers, since a vectoriser must not reorder sums of floats; and blocks of constant length, which GCC needs to vectorise at -O2.
template <class Bits, Bits kExponentStep>
bool any_non_finite(const Bits* bits, int64_t count) {
  constexpr int kBlock = 256;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  constexpr Bits kNotSign = static_cast<Bits>(kSign - 1);
  Bits seen = 0;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int k = 0; k < kBlock; ++k) seen |= static_cast<Bits>((bits[i + k] & kNotSign) + kExponentStep);
  }
  for (; i < count; ++i) seen |= static_cast<Bits>((bits[i] & kNotSign) + kExponentStep);
  return (seen & kSign) != 0;
}

template <class Bits, Bits kExponentStep>
bool in_memory(const at::Tensor& tensor, int64_t count) {
  const auto* bits = static_cast<const Bits*>(tensor.const_data_ptr());
  std::atomic<bool> found = false;
  run_ranges(count, kGrain, [&](int64_t begin, int64_t end) {
    if (any_non_finite<Bits, kExponentStep>(bits + begin, end - begin)) found.store(true, std::memory_order_relaxed);
  });
  return found;
}

}  // namespace

bool has_non_finite(const at::Tensor& dense) {
  const int64_t count = dense.numel();
  switch (dense.scalar_type()) {
    case at::kFloat:
      return in_memory<uint32_t, 0x00800000>(dense, count);
    case at::kDouble:
      return in_memory<uint64_t, 0x0010000000000000>(dense, count);
    case at::kBFloat16:
      return in_memory<uint16_t, 0x0080>(dense, count);
    case at::kHalf:
      return in_memory<uint16_t, 0x0400>(dense, count);
    case at::kComplexFloat:
      return in_memory<uint32_t, 0x00800000>(dense, 2 * count);
    case at::kComplexDouble:
      return in_memory<uint64_t, 0x0010000000000000>(dense, 2 * count);
    default:
      return false;
  }
}

}  // namespace hindcast::codegen::cpu
