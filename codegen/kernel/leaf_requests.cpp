#include "codegen/kernel/leaf_requests.h"

#include "codegen/kernel/plain.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace hindcast::codegen {
namespace {

// A range of memory: [begin, end).
struct Bytes {
  const char *begin, *end;
  bool overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

Bytes bytes_of(const at::Tensor& tensor) {
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  if (tensor.numel() == 0) return {begin, begin};
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

bool lies_like(const at::Tensor& grad, const ResultLayout& result) {
  if (grad.sizes() != at::IntArrayRef(result.sizes)) {  // the gradient is a reshaped result
    return grad.is_contiguous() && at::IntArrayRef(result.strides) == row_major_strides(result.sizes) &&
           grad.numel() == c10::multiply_integers(result.sizes);
  }
  for (int64_t d = 0; d < grad.dim(); ++d) {
    if (grad.size(d) != 1 && grad.stride(d) != result.strides[static_cast<size_t>(d)]) return false;
  }
  return true;
}

}  // namespace

bool has_leaves(const Body& body) {
  return std::any_of(body.stores.begin(), body.stores.end(), [](const BodyStore& store) { return store.leaves != 0; });
}

LeafWrites::LeafWrites(const Group& group, const Step& step, const Slots& slots, std::span<LeafRequest> requests, MakeTensor make_new,
                       c10::function_ref<ResultLayout(size_t store)> layout_of) {
  using State = LeafRequest::State;
  c10::SmallVector<Bytes, 16> taken;  // memory that must not change while the kernel runs
  std::optional<c10::DispatchKeySet> plain;
  bool all_add = true;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [store, instr, takes_result, is_of_leaves] = group.leaves[i];
    if (i == 0 || group.leaves[i - 1].store != store) all_add = true;
    LeafRequest& request = requests[i];
    if (request.state == State::None) {
      all_add = false;
      continue;
    }
    const ResultLayout layout = layout_of(store);
    if (request.state == State::BufferWanted) {
      request = {State::Filled, make_new(layout.sizes, layout.strides, layout.type)};
      writes_.push_back({i, store, request.gradient, static_cast<char*>(request.gradient.mutable_data_ptr()), false});
      all_add = false;
      continue;
    }
    if (taken.empty()) {
      for (size_t load = 0; load < group.loads.size(); ++load) taken.push_back(bytes_of(slots[step.inputs[load].slot]));
    }
    at::Tensor grad = std::move(request.gradient);
    if (!plain) plain = plain_keys(grad.device());
    const Bytes bytes = bytes_of(grad);
    if (grad.scalar_type() != layout.type || !is_plain(grad, *plain) || !lies_like(grad, layout) ||
        std::any_of(taken.begin(), taken.end(), [&](const Bytes& other) { return bytes.overlaps(other); })) {
      request = {};
      all_add = false;
      continue;
    }
    taken.push_back(bytes);
    grad.unsafeGetTensorImpl()->bump_version();
    char* const memory = static_cast<char*>(grad.mutable_data_ptr());
    writes_.push_back({i, store, std::move(grad), memory, true});
    request = {State::Added, {}};
    const bool is_last = i + 1 == group.leaves.size() || group.leaves[i + 1].store != store;
    if (is_last && is_of_leaves && all_add) only_added_.push_back(store);
  }
}

const LeafWrites::Write* LeafWrites::only_write_of(size_t store) const {
  if (!is_only_added(store)) return nullptr;
  const auto is_of_store = [&](const Write& write) { return write.store == store; };
  const auto* const first = std::find_if(writes_.begin(), writes_.end(), is_of_store);
  return std::count_if(writes_.begin(), writes_.end(), is_of_store) == 1 ? first : nullptr;
}

bool LeafWrites::is_only_added(size_t store) const { return std::find(only_added_.begin(), only_added_.end(), store) != only_added_.end(); }

}  // namespace hindcast::codegen
