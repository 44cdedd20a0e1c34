#include "engine/aot/carried_integers.h"

#include <ATen/ops/empty_strided.h>

namespace hindcast::engine {
namespace {

constexpr size_t kOfCarrier = 16;

// A negative dim and the end of an open slice (INT64_MAX) are not valid sizes.
bool is_carried(int64_t integer) { return integer >= 0 && integer < int64_t{1} << 40; }

}  // namespace

void CarriedIntegers::append_carriers(std::vector<at::Tensor>& inputs) const {
  c10::SmallVector<int64_t, kOfCarrier + 1> sizes = {0};
  const c10::SmallVector<int64_t, kOfCarrier + 1> strides(kOfCarrier + 1, 0);
  const auto end_carrier = [&] {
    inputs.push_back(at::empty_strided(sizes, c10::IntArrayRef(strides).slice(0, sizes.size()), at::kByte));
    sizes.resize(1);
  };
  for (const int64_t integer : integers_) {
    if (!is_carried(integer)) continue;
    sizes.push_back(integer);
    if (sizes.size() == kOfCarrier + 1) end_carrier();
  }
  if (sizes.size() > 1) end_carrier();
}

void CarriedIntegers::append_facts(cache::KeyBytes& facts) const {
  for (size_t i = 0; i < integers_.size(); ++i) {
    if (is_carried(integers_[i])) continue;
    cache::append_size(facts, i);
    cache::append(facts, integers_[i]);
  }
}

std::vector<c10::SymInt> CarriedIntegers::read(std::span<const at::Tensor> carriers) const {
  std::vector<c10::SymInt> integers(integers_.begin(), integers_.end());
  size_t next = 0;
  for (c10::SymInt& integer : integers) {
    if (!is_carried(integer.expect_int())) continue;
    integer = carriers[next / kOfCarrier].sym_size(static_cast<int64_t>(1 + next % kOfCarrier));
    ++next;
  }
  return integers;
}

}  // namespace hindcast::engine
