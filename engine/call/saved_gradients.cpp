#include "engine/call/saved_gradients.h"

#include "capture/backward/libtorch_access.h"

#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <mutex>

namespace hindcast::engine {
namespace {

/// Calls `visit` for the `.grad` of each leaf tensor that has one. Returns false if another thread holds a leaf's mutex.
template <class Visit>
bool for_each_gradient(const BackwardPlan& plan, const capture::Collected& collected, Visit visit) {
  for (const uint32_t call : plan.accumulating_calls()) {
    auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(*collected.calls[call].node);
    const std::unique_lock lock(capture::node_mutex(leaf), std::try_to_lock);
    if (!lock) return false;
    const at::Tensor& grad = leaf.variable.grad();
    if (grad.defined() && grad.has_storage()) visit(grad);
  }
  return true;
}

/// True if LibTorch's own allocator made its memory. No other storage has that memory, unless it borrowed it.
bool is_allocated(const at::Tensor& tensor) {
  const auto given_back_by = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get_deleter();
  return given_back_by != nullptr && given_back_by == c10::GetCPUAllocator()->raw_deleter();
}

}  // namespace

bool is_held_once(const at::Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && is_allocated(tensor); }

void Memory::add(const at::Tensor& tensor) {
  ranges_.push_back(capture::memory_of(tensor));
  is_sorted_ = false;
}

bool Memory::meets(const at::Tensor& tensor) {
  if (!is_sorted_) {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const capture::MemoryRange& a, const capture::MemoryRange& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < ranges_.size(); ++i) ranges_[i].end = std::max(ranges_[i].end, ranges_[i - 1].end);
    is_sorted_ = true;
  }
  const capture::MemoryRange range = capture::memory_of(tensor);
  const auto behind = std::lower_bound(ranges_.begin(), ranges_.end(), range.end,
                                       [](const capture::MemoryRange& one, uintptr_t end) { return one.begin < end; });
  return behind != ranges_.begin() && std::prev(behind)->end > range.begin;
}

ReadsGradient reads_gradient(const BackwardPlan& plan, const capture::Collected& collected, const capture::Resume& resume) {
  Memory all, reached;  // reached: those that something other than the leaf tensor can reach
  all.reserve(plan.accumulating_calls().size());
  const bool are_known = for_each_gradient(plan, collected, [&](const at::Tensor& grad) {
    all.add(grad);
    if (!is_held_once(grad)) reached.add(grad);
  });
  if (!are_known) return ReadsGradient::FlowsIn;
  if (all.empty()) return ReadsGradient::No;
  const auto is_one = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return false;
    if (!is_allocated(tensor)) return all.meets(tensor);
    return !reached.empty() && reached.meets(tensor);
  };
  if (std::any_of(collected.tensors.begin(), collected.tensors.end(), is_one)) return ReadsGradient::IsSaved;
  const bool flows_in =
      std::any_of(resume.values.begin(), resume.values.end(), is_one) ||
      std::any_of(resume.buffers.begin(), resume.buffers.end(), [&](const auto& waiting) { return is_one(waiting.second); });
  return flows_in ? ReadsGradient::FlowsIn : ReadsGradient::No;
}

LeafGradients::LeafGradients(const BackwardPlan& plan, const capture::Collected& collected) {
  is_known_ = for_each_gradient(plan, collected, [&](const at::Tensor& grad) { memory_.add(grad); });
}

}  // namespace hindcast::engine
