#include "codegen/cuda/prepared_calls.h"

#include "codegen/cuda/launch.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace hindcast::codegen::cuda {

void add_leaves(Addresses& addresses, const Group& group, const LeafWrites* leaves) {
  const auto* write = leaves == nullptr ? nullptr : leaves->writes().begin();
  const auto* const end = leaves == nullptr ? nullptr : leaves->writes().end();
  for (size_t i = 0; i < group.leaves.size(); ++i) {
    const auto* const wanted = write != end && write->leaf == i ? write++ : nullptr;
    if (group.body.stores[group.leaves[i].store].leaves == 0) continue;
    addresses.push_back(wanted == nullptr ? nullptr : wanted->memory);
    addresses.push_back(wanted == nullptr || !wanted->adds ? nullptr : wanted->memory);
  }
}

Arguments ArgumentPattern::with(const Addresses& addresses, at::ScalarType compute, c10::ArrayRef<double> scalars) const {
  Arguments arguments = *this;
  for (size_t i = 0; i < places_.size(); ++i) arguments.lead(i, addresses[places_[i]]);
  for (size_t i = 0; i < scalars_; ++i) arguments.set_scalar(first_scalar_ + i, compute, scalars[i]);
  return arguments;
}

void LayoutKey::add_load(const at::Tensor& tensor, const Access& access, const capture::Env& env) {
  add(tensor.dim());
  add(tensor.sizes());
  add(tensor.strides());
  if (access.sizes.empty()) [[likely]]
    return;
  for (const auto size : access.sizes) add(env.integer(size));
  if (!access.offsets.empty()) add(offsets_of(access, env));
}

void LayoutKey::add_alignment(const Addresses& addresses, c10::ArrayRef<int64_t> accesses) {
  constexpr size_t kBits = 64;
  uint64_t are_off = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto access = static_cast<uintptr_t>(i < accesses.size() ? accesses[i] : kAccess);
    if (reinterpret_cast<uintptr_t>(addresses[i]) % access != 0) are_off |= uint64_t{1} << i % kBits;
    if (i % kBits == kBits - 1 || i + 1 == addresses.size()) add(static_cast<int64_t>(std::exchange(are_off, 0)));
  }
}

uint64_t LayoutKey::hash() const { return XXH3_64bits(numbers_.data(), numbers_.size() * sizeof(int64_t)); }

std::shared_ptr<const PreparedCall> PreparedCalls::find(const LayoutKey& key, bool& comes_again) {
  const uint64_t hash = key.hash();
  comes_again = false;
  const std::unique_lock lock(inside_, std::try_to_lock);
  if (!lock) return nullptr;
  for (const auto& kept : kept_) {
    if (kept == nullptr || kept->hash != hash || !(kept->key == key)) continue;
    ++prepared_calls_found();
    return {kept, &kept->call};
  }
  comes_again = std::find(missed_.begin(), missed_.end(), hash) != missed_.end();
  if (!comes_again) missed_[std::exchange(next_missed_, (next_missed_ + 1) % kMost)] = hash;
  return nullptr;
}

void PreparedCalls::keep(const LayoutKey& key, PreparedCall&& call) {
  auto kept = std::make_shared<const Kept>(Kept{key, key.hash(), std::move(call)});
  const std::unique_lock lock(inside_, std::try_to_lock);
  if (!lock) return;
  const auto is_it = [&](const auto& other) { return other != nullptr && other->hash == kept->hash; };  // kept by another thread
  if (std::any_of(kept_.begin(), kept_.end(), is_it)) return;
  kept_[std::exchange(next_kept_, (next_kept_ + 1) % kMost)].swap(kept);
}

size_t PreparedCalls::footprint(size_t tensors, size_t launches) {
  const size_t words = tensors * (device::kMostLoops + 6) + 32;
  return kMost * (sizeof(Kept) + launches * (sizeof(PreparedLaunch) + words * sizeof(uint64_t)));
}

uint64_t& prepared_calls_found() {
  thread_local uint64_t found = 0;
  return found;
}

}  // namespace hindcast::codegen::cuda
